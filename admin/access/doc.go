// Package access decides who uses the HTTP API and the console: tokens, users with passwords, sessions,
// sign-in links, and roles for the groups of an identity provider. Secrets are stored as hashes.
package access

import (
	"slices"

	"github.com/belfryhq/belfry/admin/operation"
)

// Operations returns the operations of the package.
func Operations() []operation.Operation {
	return slices.Concat(tokenOperations(), userOperations(), sessionOperations())
}
