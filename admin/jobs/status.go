package jobs

import (
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

func statusOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "status", Short: "Show halts, paused lanes and senders, and the number of running jobs", Role: operation.Viewer,
		Long: `Show in a few lines whether operators have stopped anything: a halt, with its actor and
reason, and paused lanes and senders. The exit code is 0 in each case. For problems see
` + "`belfry doctor`" + `.`,
		Example: "  belfry status\n  belfry status --json | jq .halted_at",
	}, operation.ReadStatus, statusText)
}

func statusText(d *text.Doc, _ operation.None, s operation.Status) {
	if s.Halted() {
		d.Line("%s", s.HaltLine())
		d.Note("%s", endHalt())
	} else {
		d.Line("belfry is not halted")
	}
	d.Line("%s running", text.Counted(s.Running, "job"))
	for _, paused := range []struct {
		kind  string
		names []string
	}{{"lane", s.PausedLanes}, {"sender", s.PausedSenders}} {
		if len(paused.names) > 0 {
			refs := make([]text.RefCell, len(paused.names))
			for i, name := range paused.names {
				refs[i] = text.Ref(paused.kind, name)
			}
			d.Line("paused %ss: %s", paused.kind, text.Join(refs, ", "))
		}
	}
}
