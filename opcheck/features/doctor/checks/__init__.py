"""The rules of ``opcheck doctor``, in a file for each thing that they look at."""

from opcheck.common.catalogue import discover
from opcheck.features.doctor.check import DoctorRule

RULES = discover(__name__, DoctorRule)
