package access

import (
	"errors"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
)

// GroupRoles is what GroupRole reads, for errors.
const GroupRoles = "GROUP=ROLE, without a comma, and ROLE one of viewer, author, operator, admin"

// GroupRole reads GROUP=ROLE: what somebody outside calls a group, and the role that its members
// have here. The group ends at the last =, and has neither a comma nor spaces around it.
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
