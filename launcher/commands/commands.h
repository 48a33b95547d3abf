// edge. The commands of drun that are one call; main.cc chooses one. Each returns the exit code of
// the process, and prints its errors on stderr.
#pragma once

#include <string>

#include "agent/spec.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/outcome.h"

namespace drun {

namespace agent {
struct AgentEnd;
}
struct Plan;

// `drun list`: one line per job that has an agent on this machine. 0, also without jobs; 1 if
// stdout cannot be written.
int show_list(const ListCommand& command);

// `drun status`: finds the agents of this machine, queries each, and prints their status. 1 if no
// such job runs here, or none answers. With --watch, returns 0 after the last job ends, or on a
// signal.
int show_status(const StatusCommand& command);

// `drun stacks`: queries one agent of each job on this machine, and prints the stacks that it
// collected from all nodes. 1 if no such job runs here, or none answers.
int show_stacks(const StacksCommand& command);

// `drun logs`: prints lines from the log files of a job's ranks, and follows them. 0, also when the
// reader of stdout ends; 1 if there is no such job, rank or file.
int show_logs(const LogsCommand& command);

// `drun stop`: sends SIGTERM to the drun processes of jobs on this machine, and waits until they
// are gone. 1 if a job is unknown or still runs.
int stop_jobs(const StopCommand& command);

// `drun store`: runs the store server on a port until a signal ends it. 0 after SIGTERM or SIGINT;
// 125 if it cannot listen.
int serve_store(const StoreCommand& command);

// `drun --complete`: called by a shell when the user presses the tab key. Queries this machine's
// agents, for up to 0.5 s.
int show_completions(const CompleteCommand& command);

namespace hosts {
// A job on other machines: plan, sessions, report, exit code. Requires options.hosts.names_hosts().
// Forks (agent/process/guardian.h): call it before other threads exist, and return its result from
// main.
int run_hosts(const Options& options, const HostFacts& host);

// `drun --from-stdin`: the agent that --hosts starts on another machine. Changes this process's
// environment and directory, and forks: as above.
int run_from_stdin();
}  // namespace hosts

// --- One job (run_job.cc)

// Options -> plan -> agent under its guardian -> report and exit code. Forks
// (agent/process/guardian.h): call it while the process has one thread, and exit with the result.
int run_job(const Options& options, const HostFacts& host);

// Whether the console has shown the stderr of the worker that failed first: it goes to the console,
// and the worker ran on this node or its node sends its lines to this one.
bool has_shown_stderr(const AgentSpec& spec, const agent::AgentEnd& end);

// drun's log on stderr, as configured by the plan. `host`: included in the lines of an elastic job;
// may be empty.
Log job_log(const Plan& plan, const std::string& invoked_as, const std::string& host);

// --- Reports of earlier jobs (show_report.cc)

// `drun report`: reads event files and writes their job as a page or as text. 0, or 1 if a file
// cannot be read or written, or has no events.
int show_report(const ReportCommand& command);

// Writes a report to `file`. Prints the error, if any, and returns whether the file was written.
bool write_report(const std::string& file, const std::string& text, const std::string& invoked_as);

// The page for --report=FILE.html, from the events of one or more agents, or from the outcome if
// there are no events.
std::string html_report_of(const std::string& events, const Outcome& outcome);

}  // namespace drun
