"""Settings of the operator process, read once at start-up from ``SUNFLEET_OPERATOR_*``."""

from __future__ import annotations

import os
import re
import socket
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from sunfleet_api import names
from sunfleet_api.download import Download
from sunfleet_operator.build.network import Visitors, operators, routers
from sunfleet_operator.heard import Lookup
from sunfleet_operator.peers import PeerSetting


class PrometheusSettings(BaseModel):
    """Where the built-in scaler reads metrics. Without ``url`` every count is held, and the status says so."""

    model_config = ConfigDict(frozen=True)

    # Base URL, such as https://prometheus.monitoring:9090 or http://mimir/prometheus.
    url: str = ""
    # PEM file; instead of the system's authorities.
    ca_file: str = ""
    # Read before every query, so it may be rotated.
    bearer_token_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""
    # Sent along, for a tenant: {"X-Scope-OrgID": "team"} for Mimir, {"THANOS-TENANT": "team"} for Thanos.
    headers: dict[str, str] = Field(default_factory=dict)
    # Labels of this installation's series, where one Prometheus holds several: {"cluster": "a"}.
    matchers: dict[str, str] = Field(default_factory=dict)
    timeout_seconds: float = Field(default=10, gt=0)
    # Rates are over so long: at least twice the scrape interval.
    window_seconds: int = Field(default=60, ge=10)

    @field_validator("matchers")
    @classmethod
    def _labels(cls, value: dict[str, str]) -> dict[str, str]:
        if wrong := [name for name in value if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)]:
            raise ValueError(f"no label name: {', '.join(wrong)}")
        return value


class NetworkSettings(BaseModel):
    """The NetworkPolicies of engine pods. Peers are those of networking.k8s.io/v1, as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policies: bool = True
    # Who may reach the engines' API. Default: the router's pods in the operator's namespace.
    routers: tuple[PeerSetting, ...] = ()
    # Who may reach the engines' metrics. The label is what the Prometheus Operator and the usual charts give their
    # pods; where tenants may label pods as they like, name Prometheus' namespace as well.
    prometheus: tuple[PeerSetting, ...] = (
        PeerSetting.model_validate(
            {"namespaceSelector": {}, "podSelector": {"matchLabels": {names.LABEL_NAME: "prometheus"}}}
        ),
    )


class RouterSettings(BaseModel):
    """Which routers are asked whether they act on what was published (condition RouterSynced)."""

    model_config = ConfigDict(frozen=True)

    asked: bool = True
    # Empty: the operator's own.
    namespace: str = ""
    labels: dict[str, str] = Field(
        default_factory=lambda: {names.LABEL_COMPONENT: "router", names.LABEL_PART_OF: "sunfleet"}, min_length=1
    )


class Settings(BaseSettings):
    """One object per process. Durations are seconds."""

    # A double underscore leads into a group: SUNFLEET_OPERATOR_PROMETHEUS__URL.
    model_config = SettingsConfigDict(env_prefix="SUNFLEET_OPERATOR_", env_nested_delimiter="__", frozen=True)

    # Image of new engine pods whose SharedDecoder names none. Existing pools keep theirs, so an upgrade rolls no GPU
    # pod.
    engine_image: str = "sunfleet/worker:latest"
    # Image of resolver Jobs and download init containers.
    weights_image: str = "sunfleet/weights:latest"
    # Image of Jobs that tune and quantise.
    tuner_image: str = "sunfleet/tuner:latest"
    # Secret, in the namespace of every fleet, whose value `key` callers of engines must show. Setting it rolls every
    # pod.
    engine_key_secret: str = ""
    # Secret of type kubernetes.io/tls, in the namespace of every fleet, with which engines speak TLS and whose ca.crt
    # verifiers trust. Setting it rolls every pod.
    engine_tls_secret: str = ""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never", ""] = ""
    # Hub that hf:// URIs are read from, when it is not the public one.
    hf_endpoint: str = ""
    # How resolvers and downloads work where an object does not say: JSON with the fields of `download`.
    weights_download: Download = Field(default_factory=Download)
    # Namespaces whose objects are served, comma-separated; empty is all. Then Roles are enough instead of a
    # ClusterRole.
    namespaces: Annotated[tuple[str, ...], NoDecode] = ()

    network: NetworkSettings = Field(default_factory=NetworkSettings)
    routers: RouterSettings = Field(default_factory=RouterSettings)
    prometheus: PrometheusSettings = Field(default_factory=PrometheusSettings)
    # Metrics are read and counts decided this often. Nothing is asked while no object scales or has a budget.
    scaling_interval_seconds: float = Field(default=15, gt=0)

    workers: int = Field(default=16, ge=1)
    # Everything is looked at again this often: it repairs what a lost watch event left undone.
    resync_seconds: float = Field(default=600, gt=0)
    backoff_first_seconds: float = Field(default=0.5, gt=0)
    backoff_max_seconds: float = Field(default=300, gt=0)
    # Watched objects, and children that nobody else should write, are not read again for so long.
    recall_seconds: float = Field(default=120, ge=0)
    # A watch without any event for so long is opened anew. The API server sends a bookmark every minute, so a longer
    # silence means that the connection is dead.
    watch_silence_seconds: float = Field(default=70, gt=0)
    # A request that takes longer is given up and its object tried again with backoff.
    request_timeout_seconds: float = Field(default=30, gt=0)

    # Empty switches leader election off: only for one process run by hand.
    leader_election_namespace: str = ""
    lease_name: str = "sunfleet-operator"
    lease_duration_seconds: float = Field(default=15, gt=0)
    lease_renew_deadline_seconds: float = Field(default=10, gt=0)
    lease_retry_seconds: float = Field(default=2, gt=0)
    # The process id tells two processes on one machine apart; in a pod it is always 1, so a restarted container keeps
    # its Lease.
    identity: str = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")

    health_port: int = names.OPERATOR_HEALTH_PORT
    metrics_port: int = names.METRICS_PORT
    # /healthz fails when no worker finished anything for this long while keys wait.
    stuck_after_seconds: float = Field(default=300, gt=0)

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_json: bool = False

    @property
    def profile_namespace(self) -> str:
        """Where ServingProfiles for every namespace lie: the operator's own, if it serves that one."""
        own = self.leader_election_namespace
        return own if not self.namespaces or own in self.namespaces else ""

    @property
    def visitors(self) -> Visitors | None:
        """Whom NetworkPolicies let in from outside a fleet; ``None`` where none are made."""
        network, own = self.network, self.leader_election_namespace
        if not network.policies or not (network.routers or own):
            return None  # run by hand: nobody knows where routers are
        told = tuple(peer.manifest() for peer in network.routers)
        prometheus = tuple(peer.manifest() for peer in network.prometheus)
        return Visitors(told or routers(own), prometheus, operators(own) if own else ())

    @property
    def router_lookup(self) -> Lookup | None:
        """Where routers are; ``None`` where nobody knows, or they are not to be asked."""
        asked, namespace = self.routers, self.routers.namespace or self.leader_election_namespace
        return Lookup(namespace, asked.labels) if asked.asked and namespace else None

    @field_validator("weights_download", mode="before")
    @classmethod
    def _no_unknown_field(cls, value: object) -> object:
        """Of an object the API server says what is misspelt; here nobody else would."""
        return Download.model_validate(value, extra="forbid") if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _one_writer(self) -> Self:
        """Whoever loses the Lease must stop before somebody else may take it."""
        if not self.lease_retry_seconds < self.lease_renew_deadline_seconds < self.lease_duration_seconds:
            raise ValueError("lease_retry_seconds < lease_renew_deadline_seconds < lease_duration_seconds must hold")
        return self

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value
