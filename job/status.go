package job

// Status is where a job stands. Values equal the database's text.
type Status string

// The statuses. PROCESSED, ABORTED, FAILED and EXPIRED are terminal for the walk: a job
// leaves them only by an operator's recorded act, PROCESSED only to try skipped recipients
// again or to hold the messages that are left.
const (
	Pending   Status = "PENDING"
	Running   Status = "RUNNING"
	Processed Status = "PROCESSED"
	Aborted   Status = "ABORTED"
	Failed    Status = "FAILED"
	Expired   Status = "EXPIRED"
)

// Statuses lists every status in the order of a job's life.
func Statuses() []Status { return []Status{Pending, Running, Processed, Aborted, Failed, Expired} }

// Terminal reports whether a job in s is at rest: no runner will touch it. Such a
// job has finished_at set.
func (s Status) Terminal() bool {
	return s == Processed || s == Aborted || s == Failed || s == Expired
}

// Valid reports whether s is one of Statuses.
func (s Status) Valid() bool {
	switch s {
	case Pending, Running, Processed, Aborted, Failed, Expired:
		return true
	}
	return false
}

// edge is one legal change of status.
type edge struct{ from, to Status }

// transitions is the whole status machine. The trigger jobs_transition keeps the
// same list for whoever writes by SQL; a test walks every pair through both.
var transitions = map[edge]string{
	{Pending, Running}:   "runner: claims a due job",
	{Pending, Aborted}:   "operator: aborts before it started or after it was handed back",
	{Pending, Expired}:   "runner: finds that it did not start before expires_at",
	{Running, Pending}:   "runner: interrupted, preempted or its lane paused; hands the job back",
	{Running, Processed}: "runner: no key left up to the bound",
	{Running, Aborted}:   "operator: aborts",
	{Running, Failed}:    "runner: an error that a retry cannot fix, or too many that it could",
	{Aborted, Pending}:   "operator: resumes from the cursor",
	{Aborted, Processed}: "operator: resumes the delivery, the walk being complete",
	{Processed, Aborted}: "operator: aborts while messages are left",
	{Failed, Aborted}:    "operator: aborts while messages are left",
	{Failed, Pending}:    "operator: retries from the cursor",
	{Expired, Pending}:   "operator: retries, with expires_at lifted or ahead again",
	{Processed, Pending}: "operator: has the skipped recipients tried again",
}

// CanBecome reports whether the status machine has the edge from s to next.
// RUNNING to RUNNING, the resume of a stale run, is no change of status.
func (s Status) CanBecome(next Status) bool {
	_, ok := transitions[edge{s, next}]
	return ok
}
