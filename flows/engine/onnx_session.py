"""An ONNX model, opened to run on the processor.

Imports onnxruntime, so whoever may not need it imports it late.
"""

import os
from pathlib import Path

import onnxruntime


def open_session(model: Path, *, threads: int | None) -> onnxruntime.InferenceSession:
    """The model in a file; `threads` None takes every core.

    Raises whatever onnxruntime does where the file is no ONNX model.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or os.cpu_count() or 1
    # What it raises says the same as what it would print.
    options.log_severity_level = 4
    # Waiting threads sleep: they would burn a core that other stages could use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
