// core. Detects the engine that started this agent: the first one whose variables are set.
//
//          Slurm step > Open MPI > PMI (Hydra) > PMIx > LSF > PBS > Kubernetes index
//          > Slurm job without a step
//
// Exception: an MPI launcher that was started inside a Slurm step, or that uses a step to start its
// daemons, takes precedence over the step. An engine with incomplete variables is still selected,
// and its facts list what is missing; falling back to another engine would be a guess.
//
// Below are the rules that detect() tries; each engine has its own source.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

std::optional<Facts> detect(const EngineContext& context);

// Whether the variable identifies one process to its engine. Such a variable is valid for the agent
// but not for its workers, which would all take the same rank from it, so it is removed from the
// workers' environment. Variables about the node or the job (SLURM_JOB_ID, SLURM_NODEID,
// JOB_COMPLETION_INDEX, PBS_NODEFILE ...) stay.
bool is_foreign(std::string_view variable);

// --- Slurm (slurm.cc): a task of a step (started by srun), and a process of an allocation outside
// any step (a batch script, salloc's shell)
//
// A step uses its own node list, not the allocation's. The node rank is SLURM_NODEID and must agree
// with the list. SLURM_LAUNCH_NODE_IPADDR is the host of srun and is not used. More than one task
// per node is an error. See srun(1), src/common/env.c, and docs/guide/engines.md for the pitfalls.
// Tested with Slurm 22.05.

// Absent outside a step, or outside an allocation.
std::optional<Facts> slurm_step(const EngineContext& context);
std::optional<Facts> slurm_allocation(const EngineContext& context);

// The first node of the allocation, for launchers inside it that report no addresses.
std::optional<EngineFact<std::string>> slurm_first_host(const EngineContext& context);

// The node's address and host name from the output of `scontrol --oneliner show node NAME`. Each is
// an address or a name; invalid ones are left out.
std::vector<std::string> slurm_node_addresses(std::string_view record);

// --- MPI launchers (mpi.cc): Open MPI's mpirun, Hydra's mpiexec (MPICH, Intel MPI, MVAPICH) and
// others with PMI, and launchers with PMIx only. Each process is a node of the job.
//
// The launchers report rank and size but no list of nodes. The address of node 0 is the first of:
// MASTER_ADDR; this machine, if all ranks run on it; the first host of the Slurm, PBS or LSF job
// around the launcher; the machine of Open MPI 4's mpirun, if it has a single known address. Rank 0
// checks that it has this address. Inside a Slurm job, Slurm may know the name too (is_slurm_name).
//
// See mpirun(1), Hydra's proxy, docs/guide/engines.md. Tested with Open MPI 4.1 and Hydra 4.0.

// Absent if none of the launcher's variables is set.
std::optional<Facts> open_mpi(const EngineContext& context);
std::optional<Facts> hydra(const EngineContext& context);
std::optional<Facts> pmix(const EngineContext& context);

// Whether an MPI launcher started this process inside a Slurm step. The SLURM_ variables then
// belong to the launcher's daemon.
bool is_started_within_step(const EngineContext& context);

// --- LSF (lsf.cc)
//
// LSB_DJOB_HOSTFILE, LSB_MCPU_HOSTS or LSB_HOSTS list the hosts. Under blaunch, LSF_PM_TASKID is
// this process's position in the list, starting from 1. Based on LSF's environment variable
// reference and PRRTE's ess/lsf; not tested with a server.

// Absent outside an LSF job.
std::optional<Facts> lsf(const EngineContext& context);

// The first host of the job, for launchers inside it that report no addresses.
std::optional<EngineFact<std::string>> lsf_first_host(const EngineContext& context);

// --- PBS (pbs.cc)
//
// PBS_NODEFILE lists the hosts, and PBS_NODENUM is this host's position in it. Only TM (pbsdsh) and
// MPI launchers start processes beyond the first host. Based on qsub(1B) and pbs_resources(7B) of
// OpenPBS; not tested with a server.

// Absent outside a PBS job.
std::optional<Facts> pbs(const EngineContext& context);

// The first host of the job, for launchers inside it that report no addresses.
std::optional<EngineFact<std::string>> pbs_first_host(const EngineContext& context);

// --- Kubernetes (kubernetes.cc): a pod in an Indexed Job, which includes JobSet
//
// JOB_COMPLETION_INDEX is the node rank, and the host name ends in it. The number of nodes must be
// given by the user. Kubeflow's PET_ variables are options and need no rule.
//
// The name of node 0 is this pod's name with index 0, if the job has a headless service
// (subdomain): the kubelet then writes the full name to /etc/hosts. Based on the documentation of
// Job, JobSet and Kubeflow; not tested in a cluster.

// Absent without a completion index.
std::optional<Facts> kubernetes(const EngineContext& context);

}  // namespace drun::engines
