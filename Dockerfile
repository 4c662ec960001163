# The trainer's image: trainer/ and what it needs, nothing else of this repository.
#
#   docker build --tag trainer .                             CPU
#   docker build --tag trainer --build-arg ACCELERATOR=gpu . NVIDIA GPUs: CUDA and cuDNN come as wheels beside TensorFlow
FROM python:3.11.14-slim-bookworm

ARG ACCELERATOR=cpu
ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    TF_CPP_MIN_LOG_LEVEL=2

WORKDIR /app

# Dependencies before code: this layer is rebuilt only when a pin changes. tensorflow[and-cuda] is the same TensorFlow.
COPY trainer/requirements.txt trainer/
RUN pip install --requirement trainer/requirements.txt \
    && case "$ACCELERATOR" in \
         cpu) ;; \
         gpu) pip install "tensorflow[and-cuda]==$(sed -n 's/^tensorflow==//p' trainer/requirements.txt)" ;; \
         *) echo "ACCELERATOR is $ACCELERATOR; it must be cpu or gpu" >&2; exit 1 ;; \
       esac

COPY trainer/ trainer/
# Imports are several times slower without byte code, and the user below may not write it.
RUN python -m compileall -q trainer && useradd --uid 1000 --create-home trainer
USER 1000

ENTRYPOINT ["python", "-m", "trainer.task"]
