"""transformers and timm import torchvision, whose compiled part may not fit this torch."""

from __future__ import annotations

from opcheck.capture.child.extensions import prepare_torchvision

prepare_torchvision()
