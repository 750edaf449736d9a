"""Builds the fleet's container images and puts them into a cluster.

`catalog` says which images there are and what each is made of, `tags` turns that into a tag, `builders` drive buildah
or docker, `rootfs` makes the base image where no registry is asked, `pipeline` puts it together. An image's tag is a
hash of everything it is built from, so "is it up to date?" is the question whether a tag exists, in the builder's store
and in the cluster's.
"""
