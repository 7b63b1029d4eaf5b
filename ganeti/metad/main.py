"""The metadata daemon: tells a guest about itself, over the interface that leads to its node.

It answers HTTP requests at one link-local address, the same on every node, and knows who asks by
the address of the request, which only that guest can receive answers at.  A guest is told all of
its own metadata, private and secret parameters of its operating system included, for those are
given for it; nobody else is told anything.

NodeD brings the metadata through a Unix socket, whenever a guest is about to run here or changes,
and takes them away when it has stopped.

Source: hooks_os_ext.json, "metadata_daemon"; config.json, "paths_ensured_by_installation".
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from ganeti.base.complaints import Complaints
from ganeti.base.errors import GenericError, failing_as
from ganeti.base.paths import Paths
from ganeti.daemon import options as of_daemons
from ganeti.daemon.context import DaemonContext, listen_address
from ganeti.daemon.main import DaemonSpec
from ganeti.daemon.options import NetworkOptions, Port
from ganeti.metad.answers import OfDefinition, page_at
from ganeti.metad.guests import METADATA_BYTES_MAX, Guests
from ganeti.node_ops.instances import os_definitions, os_package
from ganeti.objects.nic import NODE_ADDRESS
from ganeti.protocol.envelope import Request, RequestError
from ganeti.protocol.node_rpc_values import GuestMetadata
from ganeti.system import clock, files
from ganeti.transport.http_message import JSON_TYPE, TEXT_TYPE, HttpRequest, HttpResponse
from ganeti.transport.http_server import HttpLimits, serve_http
from ganeti.transport.unix_server import Connection, UnixLimits, serve_unix

logger = logging.getLogger(__name__)

PORT: Final = 80
VIRTUAL_PORT: Final = 1817  # of a virtual node, whose user may lack the right to the real one
_SOCKET_MODE: Final = 0o600
_HTTP: Final = HttpLimits(
    head_bytes_max=8 * 1024,
    body_bytes_max=1024,
    answers_bytes_max=128 << 20,
    origin_answers_bytes_max=2 * os_package.BYTES_MAX,
    idle_s_max=30.0,  # guests ask a few things when they start
    connections_max=1024,
    origin_connections_max=16,
)
_CONTROL: Final = UnixLimits(message_bytes_max=2 * METADATA_BYTES_MAX, connections_max=256)
_FREEBIND: Final = 15  # linux/in.h, IP_FREEBIND: the address comes with the first guest
_BACKLOG: Final = 256
_PACKAGES_AT_ONCE: Final = 2  # each is as large as the files of a definition


class Options(NetworkOptions, frozen=True, kw_only=True):
    """The options of the metadata daemon."""

    port: Port = PORT


def _listen(paths: Paths, options: of_daemons.Options) -> socket.socket | None:
    """Take the address of a real node, while we may still have a port as low as that.

    Raises:
        GenericError: somebody else has it.
    """
    assert isinstance(options, Options)
    if paths.root:
        return None
    address = options.bind or NODE_ADDRESS
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with failing_as(GenericError, f"cannot listen on {address} port {options.port}"):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_IP, _FREEBIND, 1)
        sock.bind((address, options.port))
        sock.listen(_BACKLOG)
    return sock


class MetadataService:
    """Answers guests, and NodeD."""

    def __init__(self, paths: Paths, guests: Guests) -> None:
        self._paths = paths
        self._guests = guests
        self._packing = asyncio.Semaphore(_PACKAGES_AT_ONCE)
        self._complaints = Complaints()

    def authorize(self, request: HttpRequest) -> HttpResponse | None:
        """Refuse all that is no guest's, and all requests but GET; bodies are not even read."""
        if self._guests.at(request.client_address) is None:
            return HttpResponse.text(404, "no instance has this address here", close=True)
        if request.method == "GET":
            return None
        refusal = HttpResponse.text(405, "only GET is understood here", close=True)
        refusal.headers = {"Allow": "GET"}
        return refusal

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer a guest."""
        found = self._guests.at(request.client_address)
        if found is None:
            return HttpResponse.text(404, "no instance has this address here")
        guest, pages = found
        page = page_at(pages, request.path)
        if page is None:
            return HttpResponse.text(404, "there is nothing at this address")
        if isinstance(page, bytes):
            is_json = request.path.endswith(".json")
            return HttpResponse(body=page, content_type=JSON_TYPE if is_json else TEXT_TYPE)
        return await self._of_definition(guest, page)

    async def _of_definition(self, guest: GuestMetadata, page: OfDefinition) -> HttpResponse:
        async with self._packing:
            try:
                body = await asyncio.to_thread(_read_definition, self._paths, guest, page)
            except (GenericError, OSError) as err:
                ending = self._complaints.ending(guest.name, clock.monotonic())
                if ending is not None:
                    logger.warning("Cannot give the OS of %s to it: %s%s", guest.name, err, ending)
                return HttpResponse.text(404, "the operating system cannot be read on this node")
        return HttpResponse(body=body, content_type=TEXT_TYPE if page.script else _TAR_TYPE)

    def control(self, request: Request, _connection: Connection) -> object:
        """Answer NodeD, or a person.

        Raises:
            RequestError: there is no such method, or it takes other arguments.
            GenericError: it cannot be done.
        """
        match request.method, request.args:
            case "echo", [str(text)]:
                return text
            case "updateConfig", [dict() as value]:
                guest = GuestMetadata.from_wire(value)
                with failing_as(GenericError, "cannot keep the metadata"):
                    self._guests.put(guest)
                logger.info("Instance %s is at %s", guest.name, guest.address)
                return None
            case "forgetInstance", [str(name)]:
                if self._guests.forget(name):
                    logger.info("Instance %s is not here any more", name)
                return None
            case "listInstances", []:
                return self._guests.addresses()
        raise RequestError(f"no method {request.method!r} with these arguments")


_TAR_TYPE: Final = "application/x-tar"


def _read_definition(paths: Paths, guest: GuestMetadata, page: OfDefinition) -> bytes:
    """Return a script of a guest's operating system, or the package of all."""
    definition = os_definitions.load(paths, guest.os)
    if page.script:
        script = page.script
        if script == os_definitions.CREATE:
            script = os_package.install_script(definition)
        return files.read_bytes(definition.script(script), os_package.BYTES_MAX)
    return os_package.build(definition, _environment(definition, guest))


def _environment(definition: os_definitions.OsDefinition, guest: GuestMetadata) -> dict[str, str]:
    """Return the variables of a script that runs in the guest itself."""
    parameters = {name: value for name, (value, _visibility) in guest.parameters.items()}
    found = os_definitions.core_environment(definition, guest.os, parameters, 0)
    found |= {
        "INSTANCE_NAME": guest.name,
        "INSTANCE_OS": guest.os,
        "INSTANCE_UUID": guest.uuid,
        "HYPERVISOR": guest.hypervisor,
        "NIC_COUNT": str(len(guest.nics)),
        "DISK_COUNT": str(len(guest.disks)),
    }
    for index, nic in enumerate(guest.nics):
        found |= {f"NIC_{index}_MAC": nic.mac, f"NIC_{index}_IP": nic.ip}
    return found | {f"DISK_{index}_SIZE": str(size) for index, size in enumerate(guest.disks)}


async def _serve(context: DaemonContext) -> None:
    """Answer until told to stop."""
    options, paths = context.options_as(Options), context.paths
    guests = Guests(paths)
    with failing_as(GenericError, f"cannot use {paths.metadata_dir}"):
        guests.load()
    service = MetadataService(paths, guests)
    address, port = NODE_ADDRESS, options.port
    if context.opened is None:
        address = listen_address(context)
        port = VIRTUAL_PORT if port == PORT and not options.bind else port
    async with (
        serve_http(
            address,
            port,
            service.handle,
            tls=None,
            authorize=service.authorize,
            limits=_HTTP,
            opened=context.opened,
        ) as listening,
        serve_unix(paths.metad_socket, _SOCKET_MODE, service.control, _CONTROL),
    ):
        logger.info("Listening on %s port %d", options.bind or address, listening.port)
        context.ready()
        await context.stopping.wait()


SPEC: Final = DaemonSpec(
    name="ganeti-metad",
    description="tells instances about themselves",
    serve=_serve,
    options=Options,
    open_first=_listen,
)
