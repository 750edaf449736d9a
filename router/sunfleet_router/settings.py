"""The router's settings: environment variables ``SUNFLEET_ROUTER_*``; command-line flags of ``python -m
sunfleet_router`` win.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from sunfleet_api import names


class ConfigError(Exception):
    """Settings or a file that they name cannot be used; the text says where, what, and how to mend it."""


class RouterSettings(BaseSettings):
    """One object per process, made by the entry point and handed down."""

    model_config = SettingsConfigDict(env_prefix="SUNFLEET_ROUTER_", frozen=True)

    host: str = "0.0.0.0"  # noqa: S104 a pod's network namespace is its own
    port: int = names.ROUTER_PORT
    metrics_port: int = names.METRICS_PORT  # 0: any free port
    admin_port: int = names.ADMIN_PORT  # for the operator; as above. A fleet from a file has none
    config: Path | None = None  # a file of tasks and endpoints instead of Kubernetes
    kubeconfig: Path | None = None  # None: the pod's service account, else the usual kubeconfig
    namespaces: Annotated[tuple[str, ...], NoDecode] = ()  # comma-separated; empty: all
    authentication: Literal["keys", "disabled"] = "keys"  # disabled: whoever reaches the port may use every task
    keys_namespace: str = ""  # of the Secrets with API keys: the router's own
    # Routers that share the limits of tasks and keys; unset: the ready ones in the
    # router's namespace, and 1 where that is not known.
    replicas: int | None = Field(default=None, ge=1)
    # PEM files, as a kubernetes.io/tls Secret has them; both or neither. Read again when they change.
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    # Engines: the authority of their certificates (unset: plain HTTP) and the name in them, which is one for all pods,
    # since pods are reached by address; and the file of their API key (vLLM's VLLM_API_KEY).
    engine_ca_file: Path | None = None
    engine_server_name: str = names.ENGINE_SERVER_NAME
    engine_api_key_file: Path | None = None
    pod_headers: bool = False  # name both legs' pods in answers
    log_level: str = "INFO"
    log_format: Literal["json", "text"] = "json"
    tracing: bool = False  # OpenTelemetry; where to is said by its own variables (OTEL_EXPORTER_OTLP_ENDPOINT, ...)

    # What a client may send and how much may wait. The limits of one task are in its SunModel.
    max_body_bytes: int = Field(default=16 << 20, ge=1024)  # above it 413; a 128k-token chat is about 0.6 MB
    max_answer_bytes: int = Field(default=64 << 20, ge=1024)  # one engine's not-streamed answer
    max_answers: int = Field(default=256, ge=1)  # prompts x n of one request, each of which needs its own two legs
    answers_at_once: int = Field(default=32, ge=1)  # of these; the others wait, so that one batch fills no queue
    # Waiting for a pod, all tasks together; a task's own bounds are in its SunModel.
    max_queued_requests: int = Field(default=4096, ge=0)
    max_queued_tokens: int = Field(default=64 << 20, ge=0)  # prompt and output
    max_queued_bytes: int = Field(default=256 << 20, ge=0)  # bodies as received; held they are about three times that
    assumed_output_tokens: int = Field(default=1024, ge=1)  # reserved when the client names no max_tokens: more wastes
    # room, less risks that the decoder must preempt

    # native: a thread of its own for sockets, if the module is built (router/native); auto: native where it is.
    sockets: Literal["auto", "native", "asyncio"] = "auto"
    client_idle_timeout: float = Field(default=75.0, gt=0)  # seconds; gateways in front commonly keep theirs for 60

    # Engine calls, seconds.
    connect_timeout: float = Field(default=2.0, gt=0)
    engine_idle_timeout: float = Field(default=3.0, gt=0)  # uvicorn closes idle connections after 5: stay below it
    attempts: int = Field(default=3, ge=1)  # engine pairs tried before the first byte
    resume_attempts: int = Field(default=5, ge=1)  # tries in a row to go on with a broken stream, without a new token
    resume_limit: int = Field(default=32, ge=0)  # breaks that one stream survives; 0: none
    resume_pause: float = Field(default=0.2, ge=0)  # before the second try, and after a preemption; doubles to 5 s
    suspect_seconds: float = Field(default=2.0, ge=0)  # an unreachable pod is a last resort for so long
    # Between looks at decode pods' metrics, which show what other routers have placed there; 0: never.
    scrape_interval: float = Field(default=2.0, ge=0)

    # Answers that are made again (SunModel.spec.verification.samplePerMillion): up to so many nats between two tokens
    # either is right. 16-bit types round logits by about as much; in float32 0.001 is enough.
    shadow_near_tie: float = Field(default=0.25, ge=0)

    # Discovery, seconds.
    watch_timeout: int = Field(default=240, ge=1)  # the API server ends a watch after this
    watch_silence: float = Field(
        default=90.0, gt=0
    )  # bookmarks come every minute: no line for so long means a dead watch
    info_interval: float = Field(default=1.0, gt=0)  # between tries to read an engine's facts

    drain_timeout: float = Field(default=600.0, ge=0)  # after SIGTERM open streams get this long

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value
