"""The command line: defaults from the platform, both spellings, every fault at once."""

import pytest

from trainer.arguments import find_unsupported, image_size, parse_arguments
from trainer.errors import InvalidArguments

AIP = {"AIP_MODEL_DIR": "gs://b/out/model/", "AIP_CHECKPOINT_DIR": "gs://b/out/checkpoints/"}


def test_places_come_from_the_platform() -> None:
    options = parse_arguments(["--data=gs://b/d"], {**AIP, "AIP_TENSORBOARD_LOG_DIR": "gs://b/out/logs/"})
    assert (options.output, options.checkpoint_dir) == ("gs://b/out/model/", "gs://b/out/checkpoints/")
    assert options.log_dir == "gs://b/out/logs/"


def test_options_win_over_the_platform_and_checkpoints_lie_beside_the_model() -> None:
    options = parse_arguments(["--data", "d", "--output", "here/model"], {"AIP_MODEL_DIR": "gs://b/out/model/"})
    assert (options.output, options.checkpoint_dir, options.log_dir) == ("here/model", "here/checkpoints", "")


def test_recipes_may_write_underscores_and_booleans_as_values() -> None:
    options = parse_arguments(["--data=d", "--batch_size=7", "--augment=true", "--class-weights"], AIP)
    assert (options.batch_size, options.augment, options.class_weights) == (7, True, True)
    assert not parse_arguments(["--data=d", "--augment=false"], AIP).augment


@pytest.mark.parametrize(("model", "size"), [("digits", 8), ("flowers", 180), ("cassava", 300), ("MobileNetV2", 224)])
def test_image_size_defaults_to_what_the_model_is_known_for(model: str, size: int) -> None:
    assert image_size(parse_arguments(["--data=d", f"--model={model}"], AIP)) == size


def test_every_fault_is_named_at_once() -> None:
    argv = ["--data=d", "--epochs=0", "--batch-size=-1", "--learning-rate=nan", "--validation-split=1"]
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(argv, AIP)
    lines = str(caught.value).splitlines()
    assert "--epochs is 0; it must be at least 1" in lines
    assert "--batch-size is -1; it must be at least 1" in lines
    assert [line for line in lines if line.startswith("--learning-rate")] == [
        "--learning-rate is nan; it must be a finite number above 0"
    ]
    assert any(line.startswith("--validation-split is 1.0") for line in lines)


def test_an_option_that_the_model_would_ignore_is_refused() -> None:
    argv = ["--data=d", "--freeze-epochs=1", "--sync-batch-norm", "--weights=imagenet"]
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments([*argv, "--model=digits", "--head=flatten"], AIP)
    lines = str(caught.value).splitlines()
    assert [line.split()[0] for line in lines] == ["--freeze-epochs", "--sync-batch-norm", "--weights", "--head"]
    assert all("--model is digits" in line for line in lines)
    assert parse_arguments([*argv, "--model=cassava"], AIP).weights == "imagenet"


def test_what_parameter_servers_cannot_honour_is_named_with_its_reason() -> None:
    options = parse_arguments(["--data=d", "--model=cassava", "--scale-learning-rate", "--sync-batch-norm"], AIP)
    assert find_unsupported(options, "multi-worker") == []
    faults = find_unsupported(options, "parameter-server")
    assert [fault.split()[0] for fault in faults] == ["--scale-learning-rate", "--sync-batch-norm"]


def test_what_is_missing_or_unknown_is_named() -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(["--epoch=3"], {})
    assert "--epoch=3 is not an option" in str(caught.value)
    assert "--data is missing" in str(caught.value)
    assert "AIP_MODEL_DIR" in str(caught.value)


def test_a_seed_that_numpy_would_refuse_is_named() -> None:
    with pytest.raises(InvalidArguments, match="--seed is 4294967296; it must be below 4294967296"):
        parse_arguments(["--data=d", "--output=o", "--seed=4294967296"], {})
