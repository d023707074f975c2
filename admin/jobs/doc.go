// Package jobs has the operations on jobs and on what stops them: list, show and watch jobs; abort,
// resume, retry, change, approve, recall and test them; pause lanes, halt belfry, limit enqueuers, and
// list what operators did.
//
//	read     jobs.go show.go state.go runs.go skips.go status.go events.go
//	watch    watch.go watches.go watchboard.go
//	change   act.go plan.go group.go resume.go set.go settings.go approve.go testsend.go
//	stop     halt.go lanes.go limits.go
//
// An act on several jobs first makes a plan of their rows (plan.go), and acts on exactly that plan.
// All watches of a process share one series of snapshots ([Watches]).
package jobs

import (
	"slices"

	"github.com/belfryhq/belfry/admin/operation"
)

// Operations returns the operations of the package.
func Operations() []operation.Operation {
	return slices.Concat(jobOperations(), skipOperations(), jobActOperations(),
		[]operation.Operation{jobSetOperation(), approveOperation(), testSendOperation()},
		haltOperations(), eventOperations(), laneOperations(), limitOperations(), []operation.Operation{statusOperation()})
}
