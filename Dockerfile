# The two images: from scratch, with the programs and the libraries that they need (scripts/image.sh). They run as a nonroot
# user with a read-only root file system.
#   docker build --target operator -t dsj-operator .
#   docker build --target worker -t dsj-worker .
# Each stage uses the project's own set-up and build; the operator's stage does not need libtorch.
# Debian 12 of 2026-10-05, all architectures. The image's SBOM lists the packages of the copied libraries.
FROM debian:12@sha256:2c037a04925515fdd6ea85ea14a682d0e79931f5e9f5d07b6dbfc6ba12f9e858 AS sources
WORKDIR /src
COPY . .

FROM sources AS operator-build
RUN DSJ_SETUP_TORCH=no scripts/setup.sh \
 && scripts/build.sh build "$(scripts/jobs.sh compilers)" -DDSJ_ENGINE=OFF -DDSJ_TESTS=OFF -- dsj-operator \
 && scripts/image.sh root operator build /image

FROM sources AS worker-build
RUN scripts/setup.sh \
 && scripts/build.sh build "$(scripts/jobs.sh compilers)" -DDSJ_TESTS=OFF -DDSJ_BENCH=OFF -- dsj-agent dsj-train dsj dsj-make-quickstart \
 && scripts/image.sh root worker build /image

FROM scratch AS operator
COPY --from=operator-build /image /
ENV PATH=/opt/dsj/bin
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/opt/dsj/bin/dsj-operator"]

FROM scratch AS worker
COPY --from=worker-build /image /
ENV PATH=/opt/dsj/bin
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/opt/dsj/bin/dsj-agent"]
