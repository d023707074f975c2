package access

import (
	"errors"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
)

// GroupRoles describes the format of GroupRole in errors.
const GroupRoles = "GROUP=ROLE, without a comma, and ROLE one of viewer, author, operator, admin"

// GroupRole parses GROUP=ROLE: a group of the proxy or the provider, and the role of its members. The group
// ends at the last =. It contains no comma and has no spaces around it.
func GroupRole(text string) (group string, role operation.Role, err error) {
	i := strings.LastIndexByte(text, '=')
	if i < 0 {
		return "", 0, errors.New("no =")
	}
	if group = text[:i]; group == "" || group != strings.TrimSpace(group) || strings.Contains(group, ",") {
		return "", 0, errors.New("no group")
	}
	return group, role, role.UnmarshalText([]byte(text[i+1:]))
}
