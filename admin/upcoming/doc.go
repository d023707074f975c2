// Package upcoming lists the jobs to come and the occurrences of schedules, by time and lane, with an
// expected duration, and finds those that overlap.
package upcoming

import "github.com/belfryhq/belfry/admin/operation"

// Operations returns the operations of the package.
func Operations() []operation.Operation {
	return []operation.Operation{upcomingOperation()}
}
