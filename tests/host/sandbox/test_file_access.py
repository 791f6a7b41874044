"""Which files a server can reach, and which links are not believed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trunkline.host.config.model import ServerEntry, Source
from trunkline.host.sandbox import SandboxLocations, SandboxSettings
from trunkline.host.sandbox.file_access import FileAccess, find_file_access, root_path


def executable(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "home"
    made.mkdir()
    return made


def reached(
    home: Path, *command: str, sandbox: SandboxSettings | None = None, roots: tuple[str, ...] = (), **more: Any
) -> FileAccess:
    entry = ServerEntry(name="a", source=Source("given"), command=command or ("/bin/true",), **more)
    locations = SandboxLocations(
        private=str(home / "private"),
        protected=(str(home / "state"),),
        home=str(home),
        cwd=str(home / "work"),
        environ={"PATH": str(home / "tools" / "bin")},
    )
    return find_file_access(
        entry,
        sandbox or SandboxSettings(),
        roots,
        program=entry.command[0] if entry.command else "",
        locations=locations,
    )


def folder(*parts: str | Path) -> str:
    path = Path(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


# --- roots -----------------------------------------------------------------------------------------------------------


def test_roots_are_written_and_lists_are_what_they_say(home: Path) -> None:
    root, read, write = folder(home, "root"), folder(home, "read"), folder(home, "write")
    access = reached(home, sandbox=SandboxSettings(read=(read,), write=(write,)), roots=(root,))
    assert (set(access.write), read in access.read) == ({root, write}, True)


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("file:///a%20b", "/a b"),
        ("file://localhost/a", "/a"),
        ("file:///a/../b", "/b"),
        ("/a/./b", "/a/b"),
    ],
)
def test_a_root_is_a_path_or_a_uri(root: str, path: str) -> None:
    assert root_path(root, []) == path


@pytest.mark.parametrize("root", ["file://elsewhere/a", "file:///a%00b", "file:a"])
def test_a_root_on_another_machine_is_left_out_and_reported(root: str) -> None:
    notes: list[str] = []
    assert root_path(root, notes) is None
    assert notes == [f"the root {root} is not on this machine and is left out of the sandbox"]


def test_a_missing_path_is_left_out_and_reported(home: Path) -> None:
    access = reached(home, roots=(str(home / "gone"),))
    assert (access.write, access.notes) == ((), (f"{home / 'gone'} does not exist and is left out of the sandbox",))


# --- links -----------------------------------------------------------------------------------------------------------


def test_a_root_that_is_a_link_is_followed_and_keeps_its_name(home: Path) -> None:
    real, name = folder(home, "real"), home / "name"
    name.symlink_to(real)
    access = reached(home, roots=(str(name),))
    assert (access.write, access.aliases) == ((real,), ((str(name), real),))


@pytest.mark.parametrize("key", ["read", "write"])
def test_a_link_that_the_server_may_have_made_opens_nothing(home: Path, key: str) -> None:
    root, secrets = folder(home, "root"), folder(home, ".ssh")
    planted = Path(root) / "sub"
    planted.symlink_to(secrets)
    sandbox = SandboxSettings(read=(str(planted),)) if key == "read" else SandboxSettings(write=(str(planted),))
    access = reached(home, sandbox=sandbox, roots=(root,))
    assert (access.mounts(secrets), access.write) == (False, (root,))
    assert "a link that the server can change leads outside its folders" in access.notes[0]


def test_a_link_above_what_is_listed_is_seen_too(home: Path) -> None:
    root, secrets = folder(home, "root"), folder(home, ".ssh", "deep")
    (Path(root) / "sub").symlink_to(os.path.dirname(secrets))
    access = reached(home, sandbox=SandboxSettings(read=(f"{root}/sub/deep",)), roots=(root,))
    assert not access.mounts(secrets)


def test_a_link_in_a_root_that_is_only_read_is_the_user_s_own(home: Path) -> None:
    root, other = folder(home, "root"), folder(home, "other")
    (Path(root) / "sub").symlink_to(other)
    access = reached(home, sandbox=SandboxSettings(read=(f"{root}/sub",), read_only=True), roots=(root,))
    assert access.mounts(other)


def test_a_script_that_is_a_link_out_of_a_root_opens_nothing(home: Path) -> None:
    root, key = folder(home, "root"), Path(folder(home, ".ssh")) / "id"
    key.write_text("secret")
    (Path(root) / "server.py").symlink_to(key)
    access = reached(home, "python3", f"{root}/server.py", roots=(root,))
    assert not access.mounts(str(key))


def test_a_folder_of_a_program_that_is_a_link_out_of_a_root_opens_nothing(home: Path) -> None:
    root, secrets = folder(home, "root"), folder(home, ".ssh")
    program = executable(Path(root) / "venv" / "bin" / "python")
    (Path(root) / "venv" / "lib").symlink_to(secrets)
    assert not reached(home, str(program), roots=(root,)).mounts(secrets)


# --- what the program needs ------------------------------------------------------------------------------------------


def test_a_program_comes_with_its_libraries_and_nothing_else(home: Path) -> None:
    program = executable(home / "node" / "bin" / "node")
    library, data = folder(home, "node", "lib"), folder(home, "node", "share")
    access = reached(home, str(program))
    assert (access.mounts(str(program)), access.mounts(library), access.mounts(data)) == (True, True, False)


def test_an_environment_of_python_comes_with_the_python_it_is_of(home: Path) -> None:
    python = executable(home / "python" / "bin" / "python3")
    library = folder(home, "python", "lib")
    link = home / "venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(python)
    packages = folder(home, "venv", "lib")
    access = reached(home, str(link))
    assert (access.mounts(library), access.mounts(packages)) == (True, True)


def environment(where: Path, **files: str) -> str:
    """Create a Python environment with these files in its site-packages; return its Python."""
    packages = Path(folder(where, "lib", "python3.12", "site-packages"))
    for name, text in files.items():
        (packages / name.replace("__dot__", ".")).write_text(text)
    return str(executable(where / "bin" / "python"))


def test_an_editable_install_can_be_read_where_its_source_is(home: Path) -> None:
    by_path, by_finder, module = folder(home, "a", "src"), folder(home, "b", "src", "tool"), home / "c" / "single.py"
    executable(module)
    mapping = {"tool": by_finder, "single": str(module.with_suffix(""))}
    python = environment(
        home / "venv",
        _editable_impl_a__dot__pth=f"{by_path}\n",
        __editable__b__dot__pth="import __editable___b_finder; __editable___b_finder.install()\n",
        __editable___b_finder__dot__py=f"MAPPING: dict[str, str] = {mapping!r}\nROOT = '/'\n",
    )
    access = reached(home, python)
    assert all(map(access.mounts, (by_path, by_finder, str(module))))
    assert not any(map(access.mounts, (str(home), folder(home, "b", "other"), folder(home, "c"))))


def test_a_pth_file_that_the_server_can_change_opens_nothing_and_is_reported(home: Path) -> None:
    secrets = folder(home, ".ssh")
    python = environment(home / "root" / "venv", a__dot__pth=f"{secrets}\n")
    access = reached(home, python, roots=(str(home / "root"),))
    assert (
        access.mounts(secrets),
        f"{secrets} is left out of the sandbox: the server can change" in access.notes[0],
    ) == (
        False,
        True,
    )


def test_a_pth_file_behind_a_link_that_the_server_can_change_opens_nothing(home: Path) -> None:
    source = folder(home, "source")
    environment(home / "other", a__dot__pth=f"{source}\n")
    program = executable(home / "root" / "venv" / "bin" / "python")
    (home / "root" / "venv" / "lib").symlink_to(home / "other" / "lib")
    assert not reached(home, str(program), roots=(str(home / "root"),)).mounts(source)


def test_a_pth_file_that_names_the_home_does_not_open_it(home: Path) -> None:
    access = reached(home, environment(home / "venv", a__dot__pth=f"{home}\n"))
    assert (access.mounts(str(home)), "it contains your home folder" in access.notes[0]) == (False, True)


@pytest.mark.parametrize(
    "words",
    [
        ("trunkline", "run"),
        ("trunkline", "run", "--compat"),
        ("python3", "-m", "trunkline", "run"),
        ("env", "A=1", "trunkline", "run"),
    ],
)
def test_the_file_of_a_runner_comes_with_its_folder(home: Path, words: tuple[str, ...]) -> None:
    file, beside = executable(home / "app" / "server.py"), executable(home / "app" / "more.py")
    assert reached(home, *words, str(file)).mounts(str(beside))
    assert reached(home, *words, f"{file}:server").mounts(str(beside))


def test_a_program_behind_a_wrapper_comes_with_its_libraries(home: Path) -> None:
    executable(home / "tools" / "bin" / "python3")
    library = folder(home, "tools", "lib")
    assert reached(home, "env", "A=1", "python3", "-m", "x").mounts(library)


def test_a_program_in_the_home_s_bin_does_not_open_the_home(home: Path) -> None:
    program = executable(home / "bin" / "tool")
    library = folder(home, "lib")
    access = reached(home, str(program))
    assert (access.mounts(str(program)), access.mounts(library)) == (True, False)


@pytest.mark.parametrize("line", ["#!{interpreter}\n", "#!/usr/bin/env python\n", "#!/usr/bin/env -S python -u\n"])
def test_a_script_comes_with_its_interpreter(home: Path, line: str) -> None:
    interpreter = executable(home / "tools" / "bin" / "python")
    library = folder(home, "tools", "lib")
    script = executable(home / "scripts" / "serve", line.format(interpreter=interpreter))
    assert reached(home, str(script)).mounts(library)


def test_a_script_that_is_run_comes_with_its_folder(home: Path) -> None:
    script = executable(home / "app" / "server.py")
    beside = executable(home / "app" / "more.py")
    access = reached(home, "python3", str(script))
    assert (access.mounts(str(beside)), access.mounts(str(home / "other"))) == (True, False)


def test_a_script_of_a_package_comes_with_the_package(home: Path) -> None:
    script = executable(home / "app" / "build" / "index.js")
    (home / "app" / "package.json").write_text("{}")
    modules = folder(home, "app", "node_modules")
    assert reached(home, "node", str(script)).mounts(modules)


def test_a_script_of_a_package_comes_with_the_modules_above_it_and_the_packages_linked_there(home: Path) -> None:
    script = executable(home / "app" / "node_modules" / "server" / "dist" / "index.js")
    (home / "app" / "node_modules" / "server" / "package.json").write_text("{}")
    dependency, linked = folder(home, "app", "node_modules", "dependency"), folder(home, "app", "packages", "linked")
    Path(folder(home, "app", "node_modules", "@scope"), "linked").symlink_to(linked)
    (home / "app" / "node_modules" / "home").symlink_to(home)
    access = reached(home, "node", str(script))
    assert all(map(access.mounts, (dependency, linked)))
    assert not any(map(access.mounts, (str(home), folder(home, "app", "other"))))


def test_a_package_that_the_server_may_have_linked_opens_nothing(home: Path) -> None:
    script, secrets = executable(home / "root" / "index.js"), folder(home, ".ssh")
    Path(folder(home, "root", "node_modules"), "planted").symlink_to(secrets)
    assert not reached(home, "node", str(script), roots=(str(home / "root"),)).mounts(secrets)


def test_a_program_of_node_modules_comes_with_its_package(home: Path) -> None:
    script = executable(home / "app" / "node_modules" / "server" / "index.js", "#!/usr/bin/env node\n")
    link = Path(folder(home, "app", "node_modules", ".bin"), "server")
    link.symlink_to("../server/index.js")
    executable(home / "tools" / "bin" / "node")
    dependency = folder(home, "app", "node_modules", "dependency")
    access = reached(home, str(link))
    assert all(map(access.mounts, (str(script.parent), dependency)))


def test_a_world_writable_folder_is_not_treated_as_a_package(home: Path) -> None:
    script = executable(home / "shared" / "app" / "server.py")
    (home / "shared" / "package.json").write_text("{}")
    (home / "shared").chmod(0o777)
    assert not reached(home, "python3", str(script)).mounts(str(home / "shared" / "package.json"))


def test_a_script_in_a_home_does_not_open_the_home(home: Path) -> None:
    script = executable(home / "server.py")
    (home / "package.json").write_text("{}")
    access = reached(home, "python3", str(script))
    assert (access.mounts(str(script)), access.mounts(str(home / "package.json"))) == (True, False)
    assert access.notes == (f'only server.py itself is readable in {home}: list what else it needs under "read"',)


def test_where_variables_of_the_entry_say_that_code_is_can_be_read(home: Path) -> None:
    code = folder(home, "code")
    assert reached(home, env={"PYTHONPATH": code}).mounts(code)


@pytest.mark.parametrize(("name", "seen"), [("work", True), ("", False)])
def test_the_folder_it_is_to_start_in_can_be_read_unless_it_is_the_home(home: Path, name: str, seen: bool) -> None:
    cwd = folder(home, name)
    assert reached(home, cwd=cwd).mounts(cwd) is seen


def test_an_implied_path_with_the_hosts_files_in_it_is_left_out(home: Path) -> None:
    folder(home, "state")
    script = executable(home / "state" / "server.py")
    assert not reached(home, "python3", str(script)).mounts(str(home / "state"))


def test_a_root_above_the_host_s_files_is_known_to_cover_them(home: Path) -> None:
    state = folder(home, "state")
    assert reached(home, roots=(str(home),)).covered == (state,)


def test_a_container_needs_nothing_of_the_program(home: Path) -> None:
    root = folder(home, "root")
    entry = ServerEntry(name="a", source=Source("given"), command=("python",), cwd=str(home))
    locations = SandboxLocations(private="/p", protected=(), home=str(home), cwd="/", environ={})
    access = find_file_access(entry, SandboxSettings(), (root,), program=None, locations=locations)
    assert (access.read, access.write) == ((), (root,))
