#!/usr/bin/python3
"""Every planted bug of this folder still fits the source, or is applied to it already."""
import subprocess
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def applies(patch, *options):
    return subprocess.run(["git", "apply", "--check", *options, str(patch)], cwd=ROOT, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


class Patches(unittest.TestCase):
    def test_there_are_some_and_each_applies(self):
        patches = sorted(HERE.glob("*.patch"))
        self.assertGreater(len(patches), 0)
        for patch in patches:
            with self.subTest(patch.name):
                self.assertTrue(applies(patch) or applies(patch, "--reverse"))


if __name__ == "__main__":
    unittest.main()
