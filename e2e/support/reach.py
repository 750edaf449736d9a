"""Whether one pod gets through to another: a TCP connection, tried from within the first."""

from __future__ import annotations

from support.kubectl import Kubectl

_TRY = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()
except OSError:
    print("no")
else:
    print("yes")
"""


def reaches(kubectl: Kubectl, client: str, namespace: str, address: str, port: int) -> bool:
    """Whether a connection from ``client`` (a pod, or kind/name), whose image has Python, is accepted."""
    command = ("exec", client, "--namespace", namespace, "--", "python", "-c", _TRY, address, str(port))
    said = kubectl.run(*command).strip()
    assert said in {"yes", "no"}, said
    return said == "yes"
