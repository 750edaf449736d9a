"""Objects that the smoke tests put into the cluster."""

from support.kubectl import Json


def pod(name: str, image: str, *command: str, gpus: int = 0, port: int | None = None) -> Json:
    """A restricted pod that runs `/probe COMMAND`; with `port` it is ready when that port answers HTTP."""
    container: Json = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "args": list(command),
        "resources": {"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if gpus:
        container["resources"]["limits"]["nvidia.com/gpu"] = str(gpus)
    if port:
        container["readinessProbe"] = {"httpGet": {"path": "/", "port": port}, "periodSeconds": 1}
    spec: Json = {
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def web_server(name: str, image: str) -> Json:
    """A pod that answers `hello from NAME` on port 8080."""
    return pod(name, image, "serve", ":8080", f"hello from {name}", port=8080)


def service(name: str) -> Json:
    """A Service on port 80 in front of the pod `name`."""
    ports = [{"port": 80, "targetPort": 8080}]
    spec: Json = {"selector": {"app": name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
