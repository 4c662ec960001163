"""The training container: image classifiers on one or many TensorFlow replicas. Imports nothing else of this tree."""

__version__ = "0.1.0"
