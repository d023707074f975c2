package api

import (
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// groupRoles maps the groups of a proxy or of an OpenID provider to roles.
type groupRoles map[string]operation.Role

// parseGroupRoles parses the setting key, a list of GROUP=ROLE. A group that is listed several times
// has the highest of its roles.
func parseGroupRoles(key string, texts []string) (groupRoles, error) {
	var errs []error
	roles := make(groupRoles)
	for _, setting := range texts {
		group, role, err := access.GroupRole(setting)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q is not allowed; allowed values: "+access.GroupRoles, key, text.OneLine(setting, 60)))
			continue
		}
		roles[group] = max(roles[group], role)
	}
	return roles, errors.Join(errs...)
}
