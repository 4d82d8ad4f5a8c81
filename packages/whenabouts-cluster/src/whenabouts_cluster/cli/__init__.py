"""The verb that deploys a corpus on a cluster: parse, call, show."""

from whenabouts.cli.verbs import Verb

DEPLOY = Verb(
    "whenabouts_cluster.cli.deploy", "serve a corpus by many replicas on a Ray cluster", "search my videos"
)
