#!/usr/bin/python3
"""Tests of ci/install-deps on a machine made of stand-ins for apt-get, dpkg-query, id and sudo."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "install-deps"


class InstallDeps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tools = Path(folder.name)
        self.calls = self.tools / "calls"
        self.calls.write_text("")
        for name in ("bash", "env", "mktemp", "rm", "cat"):
            (self.tools / name).symlink_to(Path("/usr/bin") / name)
        self.tool("apt-get", f'echo "apt-get $*" >>{self.calls}')

    def tool(self, name, script):
        (self.tools / name).write_text(f"#!/usr/bin/bash\n{script}\n")
        (self.tools / name).chmod(0o755)

    def run_script(self, *, missing, user=0, sudo=False, **environment):
        self.tool("dpkg-query", "".join(f'[[ "$*" == *" {name}" ]] && exit 1\n' for name in missing) + "echo installed")
        self.tool("id", f"echo {user}")
        if sudo:
            self.tool("sudo", f'echo "sudo" >>{self.calls}\n"$@"')
        done = subprocess.run(["/usr/bin/bash", SCRIPT], env={"PATH": str(self.tools), **environment},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        return done.returncode, done.stdout, self.calls.read_text().splitlines()

    def test_nothing_is_asked_of_the_network_when_everything_is_there(self):
        code, text, calls = self.run_script(missing=[])
        self.assertEqual((code, calls), (0, []))
        self.assertIn("everything is installed", text)

    def test_root_installs_what_is_missing_and_says_so(self):
        code, text, calls = self.run_script(missing=["cmake", "libfmt-dev"])
        self.assertEqual(code, 0, text)
        self.assertIn("cmake libfmt-dev", text)
        self.assertEqual(len(calls), 2)
        self.assertRegex(calls[0], r"^apt-get .* update$")
        self.assertRegex(calls[1], r"^apt-get .* install -y --no-install-recommends cmake libfmt-dev$")

    def test_another_user_goes_through_sudo(self):
        code, text, calls = self.run_script(missing=["cmake"], user=1000, sudo=True)
        self.assertEqual(code, 0, text)
        self.assertEqual([call.split()[0] for call in calls], ["sudo", "apt-get", "sudo", "apt-get"])

    def test_without_root_and_sudo_the_packages_are_named(self):
        code, text, calls = self.run_script(missing=["cmake"], user=1000)
        self.assertEqual((code, calls), (4, []))
        self.assertIn("needs root or sudo for: cmake", text)

    def test_a_failure_of_apt_is_shown(self):
        self.tool("apt-get", "echo no such package\nexit 100")
        code, text, _ = self.run_script(missing=["cmake"])
        self.assertEqual(code, 4)
        self.assertIn("no such package", text)

    def test_a_system_without_apt_is_told_what_it_needs(self):
        (self.tools / "apt-get").unlink()
        code, text, _ = self.run_script(missing=["cmake"])
        self.assertEqual(code, 0)
        self.assertIn("libfmt-dev", text)

    def test_it_can_be_skipped(self):
        self.assertEqual(self.run_script(missing=["cmake"], SHARDCHECK_SKIP_INSTALL="1"), (0, "", []))


if __name__ == "__main__":
    unittest.main()
