"""Programs of LVM without the kernel: groups in a JSON file, volumes as sparse files below a root.

`install` writes a directory of programs (lvs, lvcreate, ...) that run this file; `make_group` makes
a volume group.  Each root has its own groups: that of a virtual node (GANETI_ROOTDIR), else the
directory named by FAKE_LVM.  What the programs answer is as LVM's own answers, which
`test_lvm_programs.py` compares where LVM is installed.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys

PROGRAMS = [
    "lvs",
    "vgs",
    "pvs",
    "lvcreate",
    "lvremove",
    "lvextend",
    "lvrename",
    "lvchange",
    "lvconvert",
    "pvchange",
    "vgreduce",
]
STATE = "fake-lvm.json"
LOG = "fake-lvm.log"
MIB = 1 << 20


class Failed(Exception):
    """The program complains and ends with status 5."""


def install(directory):
    """Write the programs into a directory, which is to be the first of PATH."""
    os.makedirs(directory, exist_ok=True)
    for name in PROGRAMS:
        path = os.path.join(directory, name)
        with open(path, "w") as file:
            file.write(
                f'#!/bin/sh\nexec {sys.executable} -I -S {os.path.abspath(__file__)} {name} "$@"\n'
            )
        os.chmod(path, stat.S_IRWXU)


def make_group(root, name, physical, extent_mib=1):
    """Make a volume group of physical volumes {name: MiB} on the node of that root."""
    state = _load(root)
    state["groups"][name] = {"extent": extent_mib * MIB}
    for device, size_mib in physical.items():
        state["physical"][device] = {"group": name, "size": size_mib * MIB, "attr": "a--"}
    _save(root, state)


def calls(root):
    """Return the command lines of all programs that ran for a root."""
    path = os.path.join(root, LOG)
    return [json.loads(line) for line in open(path)] if os.path.exists(path) else []


def change_physical(root, device, **changes):
    """Change a physical volume: attr="a-m" for one that is missing."""
    state = _load(root)
    state["physical"][device].update(changes)
    _save(root, state)


def change_volume(root, path, **changes):
    """Change a volume: data_percent="100.00" for a thin pool that is full."""
    state = _load(root)
    state["volumes"][path].update(changes)
    _save(root, state)


def _load(root):
    try:
        with open(os.path.join(root, STATE)) as file:
            return json.load(file)
    except FileNotFoundError:
        return {"groups": {}, "physical": {}, "volumes": {}}


def _save(root, state):
    temporary = os.path.join(root, STATE + ".new")
    with open(temporary, "w") as file:
        json.dump(state, file)
    os.rename(temporary, os.path.join(root, STATE))


def _used(state, device):
    return sum(dict(each["pieces"]).get(device, 0) for each in state["volumes"].values())


def _parse(words):
    options, rest = {}, []
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            options.setdefault(name, []).append(value)
        else:
            rest.append(word)
    return options, rest


def _extents(state, group, text):
    extent = state["groups"][group]["extent"]
    unit = 1 if text.endswith("b") else MIB
    return -(-int(text.strip("+mb")) * unit // extent) * extent


def _group(state, name):
    if name not in state["groups"]:
        raise Failed(f'Volume group "{name}" not found\n  Cannot process volume group {name}')


def _volume(state, path):
    _group(state, path.partition("/")[0])
    if path not in state["volumes"]:
        raise Failed(f'Failed to find logical volume "{path}"')
    return state["volumes"][path]


def _pieces(state, group, size, stripes, allowed):
    """Take room on physical volumes, on the listed ones if any are."""
    room = {
        name: each["size"] - _used(state, name)
        for name, each in state["physical"].items()
        if each["group"] == group
        and each["attr"].startswith("a-")
        and each["attr"][2] != "m"
        and (not allowed or name in allowed)
    }
    if stripes > 1:
        extent = state["groups"][group]["extent"]
        part = -(-size // (stripes * extent)) * extent
        roomy = [name for name in room if room[name] >= part][:stripes]
        if len(roomy) < stripes:
            raise Failed(
                f"Insufficient suitable allocatable extents for logical volume: {stripes} stripes"
            )
        return [(name, part) for name in roomy]
    found = []
    for name in sorted(room, key=lambda name: -room[name]):
        part = min(size, room[name])
        if part:
            found.append((name, part))
            size -= part
    if size:
        free = sum(room.values()) // state["groups"][group]["extent"]
        raise Failed(
            f'Volume group "{group}" has insufficient free space ({free} extents): more required.'
        )
    return found


def _path(root, volume):
    return os.path.join(root, "dev", volume)


def _copy(source_path, target_path):
    """Copy what was written to a volume; the holes of the target stay."""
    with open(source_path, "rb") as source, open(target_path, "r+b") as target:
        end = 0
        while True:
            try:
                begin = os.lseek(source.fileno(), end, os.SEEK_DATA)
            except OSError:  # there is no more
                return
            end = os.lseek(source.fileno(), begin, os.SEEK_HOLE)
            source.seek(begin)
            target.seek(begin)
            while (length := min(end - source.tell(), MIB)) > 0:
                target.write(source.read(length))


def lvcreate(root, state, options, rest):
    name = options["name"][0]
    origin = pool = ""
    if "snapshot" in options:
        if "wipesignatures" in options:
            raise Failed("Option --wipesignatures is unsupported with snapshots.")
        group, origin = rest[0].split("/")
        source = _volume(state, rest[0])
    elif "thinpool" in options:
        group, pool = options["thinpool"][0].split("/")
    else:
        group, *_ = rest
    _group(state, group)
    path = f"{group}/{name}"
    if path in state["volumes"]:
        raise Failed(f'Logical Volume "{name}" already exists in volume group "{group}"')
    if origin:
        pool = source["pool"]
        if options.get("extents") == ["100%ORIGIN"]:
            options["size"] = [f"{source['size']}b"]
    is_thin = bool(pool)
    stripes = int(options.get("stripes", ["1"])[0])
    size = _extents(state, group, options.get("virtualsize", options.get("size", ["0m"]))[0])
    pieces = [] if is_thin else _pieces(state, group, size, stripes, [] if origin else rest[1:])
    state["volumes"][path] = {
        "pool": pool,
        "type": options.get("type", [""])[0],
        "size": size if is_thin else sum(size for _, size in pieces),
        "tags": options.get("addtag", []),
        "pieces": pieces,
        "origin": origin,
        "stripes": stripes,
        "active": True,
        "data_percent": "0.00" if is_thin or options.get("type") == ["thin-pool"] else "",
        "metadata_percent": "10.84" if options.get("type") == ["thin-pool"] else "",
    }
    os.makedirs(os.path.dirname(_path(root, path)), exist_ok=True)
    if origin:
        state["volumes"][path]["size"] = source["size"]
    with open(_path(root, path), "wb") as file:
        file.truncate(state["volumes"][path]["size"])
    if origin:
        _copy(_path(root, rest[0]), _path(root, path))


def lvremove(root, state, _options, rest):
    _volume(state, rest[0])
    del state["volumes"][rest[0]]
    for path in [
        path
        for path, each in state["volumes"].items()
        if each["origin"]
        and not each["pool"]
        and rest[0] == f"{path.split('/')[0]}/{each['origin']}"
    ]:
        del state["volumes"][path]
    if os.path.exists(_path(root, rest[0])):
        os.unlink(_path(root, rest[0]))


def lvextend(root, state, options, rest):
    found = _volume(state, rest[0])
    group = rest[0].split("/")[0]
    stripes = int(options.get("stripes", [found["stripes"]])[0])
    size = _extents(state, group, options["size"][0])
    pieces = [(None, size)] if found["pool"] else _pieces(state, group, size, stripes, rest[1:])
    if "test" not in options:
        sizes = dict(found["pieces"])
        for name, part in pieces:
            sizes[name] = sizes.get(name, 0) + part
        if not found["pool"]:
            found["pieces"] = list(sizes.items())
        found["size"] += sum(size for _, size in pieces)
        os.truncate(_path(root, rest[0]), found["size"])


def lvrename(root, state, _options, rest):
    group, old, new = rest
    found = _volume(state, f"{group}/{old}")
    if f"{group}/{new}" in state["volumes"]:
        raise Failed(f'Logical Volume "{new}" already exists in volume group "{group}"')
    del state["volumes"][f"{group}/{old}"]
    state["volumes"][f"{group}/{new}"] = found
    os.rename(_path(root, f"{group}/{old}"), _path(root, f"{group}/{new}"))


def lvchange(_root, state, options, rest):
    found = _volume(state, rest[0])
    found["tags"] = [tag for tag in found["tags"] if tag not in options.get("deltag", ())]
    found["tags"] += options.get("addtag", [])
    for value in options.get("activate", ()):
        if (
            any(state["physical"][name]["attr"][2] == "m" for name, _ in found["pieces"])
            and value == "y"
        ):
            raise Failed(
                f"Refusing activation of partial LV {rest[0]}.  Use '--activationmode partial' to override."
            )
        found["active"] = value == "y"


def lvconvert(root, state, options, rest):
    assert "merge" in options
    kept = _volume(state, rest[0])
    origin = f"{rest[0].split('/')[0]}/{kept['origin']}"
    target = _volume(state, origin)
    if not target["active"]:
        raise Failed("Merging of snapshot will occur on next activation.")
    assert not kept["pool"], "a thin one would not be a snapshot of its origin any more"
    for size in (0, os.path.getsize(_path(root, origin))):
        os.truncate(_path(root, origin), size)
    _copy(_path(root, rest[0]), _path(root, origin))
    del state["volumes"][rest[0]]
    os.unlink(_path(root, rest[0]))


def pvchange(_root, state, options, rest):
    for name in rest:
        if name not in state["physical"]:
            raise Failed(f"Failed to find device for physical volume {name}.")
        attr = state["physical"][name]["attr"]
        state["physical"][name]["attr"] = ("a" if options["allocatable"] == ["y"] else "-") + attr[
            1:
        ]


def vgreduce(_root, state, options, rest):
    _group(state, rest[0])
    assert "removemissing" in options
    lost = [
        name
        for name, each in state["physical"].items()
        if each["group"] == rest[0] and each["attr"][2] == "m"
    ]
    for name in lost:
        if _used(state, name):
            raise Failed(
                f"WARNING: Partial LV needs to be repaired or removed.\n  There are still partial LVs in VG {rest[0]}."
            )
        del state["physical"][name]


def _kind(each):
    if each["pool"]:
        return "V"
    return "t" if each["type"] == "thin-pool" else "s" if each["origin"] else "-"


def _health(each, lost):
    return each.get("health") or "-p"[lost]


def lvs(_root, state, _options, _rest):
    for path, each in state["volumes"].items():
        group, name = path.split("/")
        lost = any(
            state["physical"].get(device, {"attr": "a-m"})["attr"][2] == "m"
            for device, _ in each["pieces"]
        )
        yield {
            "vg_name": group,
            "lv_name": name,
            "lv_size": each["size"],
            "origin": each["origin"],
            "lv_attr": _kind(each)
            + "wi-"
            + "-a"[each["active"]]
            + "---"
            + _health(each, lost)
            + "-",
            "lv_tags": ",".join(each["tags"]),
            "lv_kernel_major": -1,
            "lv_kernel_minor": -1,
            "pool_lv": each["pool"],
            "stripes": each["stripes"],
            "data_percent": each["data_percent"],
            "metadata_percent": each["metadata_percent"],
            "devices": ",".join(f"{device}(0)" for device, _ in each["pieces"]),
        }


def vgs(_root, state, _options, _rest):
    for name, group in state["groups"].items():
        own = {device: each for device, each in state["physical"].items() if each["group"] == name}
        yield {
            "vg_name": name,
            "vg_size": sum(each["size"] for each in own.values()),
            "vg_free": sum(each["size"] - _used(state, device) for device, each in own.items()),
            "vg_extent_size": group["extent"],
            "vg_missing_pv_count": sum(each["attr"][2] == "m" for each in own.values()),
        }


def pvs(_root, state, _options, _rest):
    for device, each in state["physical"].items():
        used = [
            path.split("/")[1]
            for path, lv in state["volumes"].items()
            if device in dict(lv["pieces"])
        ]
        for volume in used or [""]:
            yield {
                "pv_name": device,
                "vg_name": each["group"],
                "pv_size": each["size"],
                "pv_free": each["size"] - _used(state, device),
                "pv_attr": each["attr"],
                "lv_name": volume,
            }


REPORTS = {"lvs": "lv", "vgs": "vg", "pvs": "pv"}


def main(program, *words):
    root = os.environ.get("FAKE_LVM") or os.environ["GANETI_ROOTDIR"]
    with open(os.path.join(root, STATE + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(os.path.join(root, LOG), "a") as log:
            log.write(json.dumps([program, *words]) + "\n")
        state = _load(root)
        options, rest = _parse(words)
        try:
            rows = globals()[program](root, state, options, rest)
            if program in REPORTS:
                columns = options["options"][0].split(",")
                rows = [{name: str(row[name]) for name in columns} for row in rows]
                print(json.dumps({"report": [{REPORTS[program]: rows}]}))
                return 0
        except Failed as err:
            print(f"  {err}", file=sys.stderr)
            return 5
        _save(root, state)
        return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
