// Package recipients has the operations on recipients: attached tables, segments, opt-outs, categories
// and the erasure of one person.
package recipients

import (
	"slices"

	"github.com/belfryhq/belfry/admin/operation"
)

// Operations returns the operations of the package.
func Operations() []operation.Operation {
	return slices.Concat(categoryOperations(), optOutOperations(), []operation.Operation{forgetOperation()}, segmentOperations(),
		attachOperations())
}
