# shellcheck shell=bash
# For users without any rights on the cluster. In a batch script, behind its #SBATCH lines:
#
#     . /path/to/diagnose/deploy/slurm/trap.sh
#
# When the script fails, the job's output is diagnosed before it ends; the report goes to standard error and the verdict
# into the job's comment. The script's exit code stays what it is. A job that is cancelled or runs into its limit is not
# diagnosed: there is no time left, and the scheduler knows why.

_diagnose_at_exit() {
  local code=$?
  trap - EXIT
  if [ "$code" -ne 0 ] && [ -n "${SLURM_JOB_ID:-}" ] && [ -z "${_diagnose_told_to_end:-}" ]; then
    timeout "${DIAGNOSE_SECONDS:-120}" "${DIAGNOSE:-diagnose}" slurm "$SLURM_JOB_ID" --exit-code "$code" --comment >&2 || :
  fi
  exit "$code"
}

trap _diagnose_at_exit EXIT
trap '_diagnose_told_to_end=yes; exit 143' TERM
