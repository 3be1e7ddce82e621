# eqr on a CPU: `docker build -t eqr .`, then `docker run --rm eqr solve sudoku-9x9 "53..7...."`.
# Runs and data belong on the outside: `docker run --rm -v "$PWD:/home/eqr/work" eqr train sudoku-6x6`.
# For a GPU build with `--build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128` and run with `--gpus all`.
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" -c constraints.txt ".[plots,serve]" \
    && useradd --create-home eqr
USER eqr
WORKDIR /home/eqr/work
EXPOSE 8000
ENTRYPOINT ["eqr"]
CMD ["--help"]
