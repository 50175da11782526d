# Everything in a container, with CPU builds of torch:
#   docker build -t sibcore .
#   docker run --rm -p 127.0.0.1:8888:8888 sibcore                                             JupyterLab on the notebooks
#   docker run --rm sibcore ./run_all.sh                                                       everything
#   docker run --rm -v "$PWD:/data" sibcore sib predict --support /data/a --query /data/b --out /data/labels.csv
FROM python:3.11-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*
ENV VIRTUAL_ENV=/opt/venv PATH=/opt/venv/bin:$PATH \
    PIP_NO_CACHE_DIR=1 PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
# not root: JupyterLab refuses to run as root, and what is written to a mounted folder should not be root's
RUN useradd --create-home --uid 1000 sib \
    && mkdir /sibcore \
    && python -m venv "$VIRTUAL_ENV" \
    && chown -R sib:sib /sibcore "$VIRTUAL_ENV"
USER sib
WORKDIR /sibcore
# the packages first: they change less often than the code
COPY --chown=sib:sib requirements.txt ./
RUN pip install --disable-pip-version-check --require-hashes --no-deps -r requirements.txt
COPY --chown=sib:sib . .
# installs the project itself and leaves the mark by which run_all.sh knows that all is there
RUN ./run_all.sh --list
EXPOSE 8888
CMD ["./run_all.sh", "lab", "--ip=0.0.0.0", "--no-browser"]
