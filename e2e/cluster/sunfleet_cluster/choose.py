"""Which kind of cluster this machine gets."""

from sunfleet_api.settings import read
from sunfleet_cluster import kind
from sunfleet_cluster.cluster import Cluster
from sunfleet_cluster.embedded import EmbeddedCluster
from sunfleet_cluster.external import ExternalCluster
from sunfleet_cluster.settings import ClusterSettings, Flavour
from sunfleet_cluster.state import StateFolder


def open_cluster(settings: ClusterSettings | None = None) -> Cluster:
    """The cluster that `settings` (default: the environment) ask for; nothing is started."""
    settings = settings or read(ClusterSettings)
    if settings.use_kubeconfig and settings.kubeconfig:
        kubectl = StateFolder(settings.state).bin / "kubectl"
        return ExternalCluster(settings.kubeconfig, str(kubectl) if kubectl.exists() else "kubectl")
    if _flavour(settings) is Flavour.KIND:
        return kind.KindCluster(settings)
    return EmbeddedCluster(settings)


def _flavour(settings: ClusterSettings) -> Flavour:
    """What was asked for; else what is there already, so that Docker's coming or going does not orphan a
    cluster; else by Docker's presence.
    """
    if settings.cluster is not Flavour.AUTO:
        return settings.cluster
    state = StateFolder(settings.state)
    if kind.made(state).exists():
        return Flavour.KIND
    if (state.cluster / "pki").exists():
        return Flavour.EMBEDDED
    return Flavour.KIND if kind.docker_answers() else Flavour.EMBEDDED
