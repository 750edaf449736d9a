"""Names, labels, ports and field managers: the vocabulary that operator, router, worker and tests share.

Everything here ends up on live objects, so a change of a value is a migration.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "serving.sunfleet.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# Field managers, one per concern, so that server-side apply shows who owns which field.
FIELD_MANAGER: Final = "sunfleet-operator"
SCALE_FIELD_MANAGER: Final = "sunfleet-scale"
ADAPTERS_FIELD_MANAGER: Final = "sunfleet-adapters"
STATUS_FIELD_MANAGER: Final = "sunfleet-status"

FINALIZER: Final = f"{GROUP}/in-use"
# Set to "true" by a person who deletes a decoder although tasks still use it.
ANNOTATION_FORCE_DELETE: Final = f"{GROUP}/force-delete"

# Set to "true" by a person: the built-in scaler leaves the object's count as it is.
ANNOTATION_SCALING_PAUSED: Final = f"{GROUP}/scaling-paused"

# On a pod of a PrefillPool: which adapters its engine has loaded; see sunfleet_api.pooling.
ANNOTATION_ADAPTERS: Final = f"{GROUP}/adapters"

LABEL_DECODER: Final = f"{GROUP}/decoder"
LABEL_POOL: Final = f"{GROUP}/pool"
LABEL_MODEL: Final = f"{GROUP}/model"
LABEL_TUNING: Final = f"{GROUP}/tuning"
LABEL_ROLE: Final = f"{GROUP}/role"
LABEL_REVISION: Final = f"{GROUP}/revision"
# First 32 hex digits of the KV fingerprint: the router pairs only pods whose values are equal.
LABEL_KV_FINGERPRINT: Final = f"{GROUP}/kv-fingerprint"

# "true" on a Secret in the router's namespace: an API key of a client.
LABEL_API_KEY: Final = f"{GROUP}/api-key"

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_VERSION: Final = "app.kubernetes.io/version"
MANAGED_BY: Final = "sunfleet"

ROLE_PREFILL: Final = "prefill"
ROLE_DECODE: Final = "decode"
ROLE_RESOLVER: Final = "resolver"
ROLE_VERIFIER: Final = "verifier"
ROLE_TUNER: Final = "tuner"
ROLE_QUANTIZER: Final = "quantizer"

# Ports of an engine pod.
ENGINE_CONTAINER: Final = "engine"
ENGINE_PORT: Final = 8000
ENGINE_SERVER_NAME: Final = "sunfleet-engine"  # in engines' certificates: one for all, since pods have only addresses
ADMIN_PORT: Final = 8001  # of a PrefillPool's pods and of routers, for the operator alone
SIDE_CHANNEL_PORT: Final = 5600
KV_PORT_FIRST: Final = 5700
KV_PORT_LAST: Final = 5799

# Ports of router and operator pods.
ROUTER_PORT: Final = 8080
OPERATOR_HEALTH_PORT: Final = 8080
# Of every pod, so that a policy can let Prometheus in here and nowhere else.
METRICS_PORT: Final = 9090

# Every pod of a fleet sees weights at these paths: the engines' handshake compares the model string, so it must not
# depend on the task or on where the weights came from.
WEIGHTS_PATH: Final = "/weights/model"
ADAPTER_PATH: Final = "/weights/adapter"
TLS_PATH: Final = "/etc/sunfleet/tls"  # tls.crt and tls.key, where an engine's API speaks TLS
ADAPTERS_PATH: Final = "/weights/adapters"  # of a PrefillPool's pod: a folder for each adapter
CLAIMS_PATH: Final = "/weights/claims"  # likewise: a folder for each claim that holds adapters
# In pods that tune or quantise.
TUNER_CONTAINER: Final = "tuner"
INIT_PATH: Final = "/weights/init"
DATA_PATH: Final = "/data/train"
VALIDATION_PATH: Final = "/data/validation"
OUTPUT_PATH: Final = "/output"

MAX_OBJECT_NAME: Final = 40
REVISION_HASH_LENGTH: Final = 8
# The preStop hook sleeps so long: routers see the pod leave before SIGTERM reaches the engine.
PRE_STOP_SECONDS: Final = 5
