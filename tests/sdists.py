"""Test data of other projects, and one of their parsers, as they publish them; fetched when it is
needed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".sdists"


def fetch(project: str, version: str, digest: str | None = None) -> Path:
    """The sdist of a release, from the cache if it is there.

    :param digest: its SHA-256, where the content must be the very same
    """
    CACHE.mkdir(exist_ok=True)
    sdist = CACHE / f"{project}-{version}.tar.gz"
    if not sdist.exists():
        # Into a folder of its own first: an interrupted download must not be found later.
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--no-binary", project, "--dest", folder, f"{project}=={version}"]
            subprocess.run(command, check=True)
            (Path(folder) / sdist.name).replace(sdist)
    if digest is not None:
        assert sha256(sdist.read_bytes()).hexdigest() == digest
    return sdist


def installed(project: str, version: str) -> Path:
    """A folder of its own with a release that is built for this Python, to import it from."""
    folder = CACHE / f"{project}-{version}-{sys.implementation.cache_tag}"
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            command += ["--only-binary", ":all:", "--target", f"{place}/it"]
            subprocess.run([*command, f"{project}=={version}"], check=True)
            with suppress(OSError):  # another test has been faster
                Path(place, "it").replace(folder)
    return folder


def read(sdist: Path, name: str) -> bytes:
    """A file of an sdist, by its path below the folder of the release."""
    with tarfile.open(sdist) as archive:
        folder = sdist.name.removesuffix(".tar.gz")
        file = archive.extractfile(f"{folder}/{name}")
        assert file
        return file.read()
