// Package schedules has the operations on recurring schedules: list, show, add, change, pause, try a
// query, and run one now. Package job/schedule fires them.
package schedules

import "github.com/belfryhq/belfry/admin/operation"

// Operations returns the operations of the package.
func Operations() []operation.Operation {
	return scheduleOperations()
}
