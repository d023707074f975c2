// Package jobs contains the operations on jobs: list, show and watch them; abort, resume, retry, change,
// approve, recall and test them; pause lanes, halt belfry, limit new jobs, and list events.
//
//	read     jobs.go show.go state.go runs.go skips.go status.go events.go
//	watch    watch.go watchview.go broadcaster.go newevents.go
//	change   act.go plan.go group.go resume.go set.go settings.go approve.go testsend.go
//	stop     halt.go lanes.go limits.go
//
// A change of several jobs can be planned first (plan.go). It then changes exactly the planned number of
// jobs, or fails. All streams of a process share one poll ([Broadcaster]).
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
