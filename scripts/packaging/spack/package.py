# Recipe for Spack. Not tested, because Spack was not available.
from spack.package import *


class Drun(CMakePackage):
    """A launcher of distributed jobs: a faster, stricter torchrun for any language."""

    license("MIT")
    version("1.0.0")

    variant("gloo", default=True, description="Collectives between nodes over Gloo")
    variant("mpi", default=False, description="worker_lib's backend over MPI")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("boost@1.74:")
    depends_on("cli11@2.1:")
    depends_on("spdlog@1.10:")
    depends_on("nlohmann-json@3.11:")
    depends_on("hwloc@2:")
    depends_on("openssl@3:")
    depends_on("gloo", when="+gloo")
    depends_on("mpi", when="+mpi")

    def cmake_args(self):
        return [
            self.define("DRUN_TESTS", False),
            self.define("DRUN_WITH_GLOO", "ON" if self.spec.satisfies("+gloo") else "OFF"),
            self.define("DRUN_WITH_MPI", "ON" if self.spec.satisfies("+mpi") else "OFF"),
        ]
