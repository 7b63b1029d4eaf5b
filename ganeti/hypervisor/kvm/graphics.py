"""Iterator[str] for screen, VNC and SPICE consoles, USB and sound.

Source: manual page qemu-system-x86_64(1); constants.json, "hvparams".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.hypervisor.kvm.devices import on_off, option_value
from ganeti.hypervisor.kvm.machine import Machine
from ganeti.hypervisor.kvm.params import SOUND_CARDS, VNC_BASE_PORT, KvmParams, usb_device_option
from ganeti.hypervisor.kvm.placement import Placement


def screen_options(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    """Yield the options for the screen and who may look at it."""
    yield from ("-display", "none")
    yield from ("-vga", params.text("vga") or ("qxl" if params.has_spice else "std"))
    if params.text("keymap"):
        yield from ("-k", params.text("keymap"))
    if params.has_vnc:
        yield from _vnc(machine, place, params)
    if params.has_spice:
        yield from _spice(machine, place, params)


def _vnc(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    if place.console_address.startswith("/"):
        options = [f"unix:{option_value(place.console_address)}"]
    else:
        assert machine.network_port is not None  # checked before the machine is placed
        address = place.console_address
        host = f"[{address}]" if ":" in address else address
        options = [f"{host}:{machine.network_port - VNC_BASE_PORT}"]
    if params.flag("vnc_tls"):
        path = place.local(params.text("vnc_x509_path"))
        verify = on_off(params.flag("vnc_x509_verify"))
        kind = f"tls-creds-x509,dir={option_value(path)}" if path else "tls-creds-anon"
        yield from ("-object", f"{kind},id=vnctls,endpoint=server,verify-peer={verify}")
        options.append("tls-creds=vnctls")
    if place.console_password:
        options.append("password=on")
    yield from ("-vnc", ",".join(options))


_SPICE_TEXTS: Final[Mapping[str, str]] = {  # parameter -> option
    "spice_image_compression": "image-compression",
    "spice_jpeg_wan_compression": "jpeg-wan-compression",
    "spice_streaming_video": "streaming-video",
    "spice_zlib_glz_wan_compression": "zlib-glz-wan-compression",
}


def _spice(machine: Machine, place: Placement, params: KvmParams) -> Iterator[str]:
    options = [f"addr={place.console_address}"]
    if params.flag("spice_use_tls"):
        authority, certificate, key = map(option_value, place.spice_files)
        options += [
            f"tls-port={machine.network_port}",
            f"x509-cacert-file={authority}",
            f"x509-cert-file={certificate}",
            f"x509-key-file={key}",
            f"tls-ciphers={option_value(params.text('spice_tls_ciphers'))}",
        ]
    else:
        options.append(f"port={machine.network_port}")
    version = params.number("spice_ip_version")
    if version:
        options.append(f"ipv{version}=on")
    if not place.console_password:
        options.append("disable-ticketing=on")
    for parameter, option in _SPICE_TEXTS.items():
        if params.text(parameter):
            options.append(f"{option}={params.text(parameter)}")
    options.append(f"playback-compression={on_off(params.flag('spice_playback_compression'))}")
    options.append(f"agent-mouse={on_off(params.flag('spice_use_vdagent'))}")
    yield from ("-spice", ",".join(options))


def usb_and_sound_options(params: KvmParams) -> Iterator[str]:
    """Yield the options for USB devices and sound."""
    devices = params.usb_devices()
    if params.text("usb_mouse"):
        devices.insert(0, params.text("usb_mouse"))
    if devices:
        yield "-usb"
    for device in devices:
        option = usb_device_option(device)
        assert option is not None  # refused by check_params
        yield from ("-device", option)
    if params.text("soundhw"):
        yield from ("-audiodev", "none,id=audio")
        for option in SOUND_CARDS[params.text("soundhw")]:
            yield from ("-device", option)
