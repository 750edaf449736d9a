"""The operator with hundreds of SunModels: real etcd, API server and controllers, and pods that are Ready at once.

It measures the operator alone, so nothing here starts a container: `node` plays every kubelet, `router` the routers.
"""
