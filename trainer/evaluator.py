"""The evaluator of pool 3: measures every checkpoint it finds, beside the training and out of its way."""

import json
import time
from pathlib import Path

import tensorflow as tf

from trainer.arguments import Options, image_size
from trainer.errors import PeerLost
from trainer.images import ImageCache
from trainer.inputs import open_inputs
from trainer.loop import assign, model_variables
from trainer.measure import measure
from trainer.milestones import from_state, load_checkpoint
from trainer.models import build_model
from trainer.progress import say
from trainer.storage import join, write

_PAUSE = 1.0


def evaluate_checkpoints(options: Options, directory: Path) -> None:
    """Writes `evaluation/step-N.json` beside the checkpoints until the last epoch's has been measured.

    Raises PeerLost when no new checkpoint appears for as long as peers are waited for.
    """
    inputs = open_inputs(options, directory)
    cache = ImageCache(inputs.dataset, image_size(options), skip_bad=options.skip_bad_images)
    model = build_model(tf.keras, options, len(inputs.dataset.classes))
    variables = model_variables(model)
    target = join(options.checkpoint_dir.rstrip("/").rpartition("/")[0] or ".", "evaluation")
    measured, deadline = -1, time.monotonic() + options.peer_timeout
    while True:
        state = load_checkpoint(options, inputs)
        if state is not None and state.step > measured:
            measured, deadline = state.step, time.monotonic() + options.peer_timeout
            assign(variables, state.values[: len(variables)])
            metrics, _ = measure(model, inputs, cache)
            document = {"step": state.step, "epoch": state.position.epoch, **metrics}
            write(join(target, f"step-{state.step:08d}.json"), json.dumps(document).encode())
            say("evaluation " + " ".join(f"{name} {value:.4g}" for name, value in document.items()))
            if from_state(state).is_done(options):  # the coordinator writes no other
                return
        if time.monotonic() > deadline:
            raise PeerLost(f"no new checkpoint in {options.checkpoint_dir} for {options.peer_timeout:g} s")
        time.sleep(_PAUSE)
