package delivery

import (
	"slices"

	"github.com/belfryhq/belfry/admin/operation"
)

// Operations returns the operations of the package.
func Operations() []operation.Operation {
	return slices.Concat(senderOperations(), transportOperations(), deadOperations(),
		[]operation.Operation{samplesOperation(), pruneOperation(), adoptOperation()})
}
