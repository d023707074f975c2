package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the unprivileged account that runs the server for root; nil
// everywhere else, where the server runs as the user itself.
type account struct {
	name     string
	uid, gid int
}

// serverAccount returns nil unless this process is root; then postgres if there
// is such an account and otherwise nobody.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the account of everybody but root, by the type's definition
	}
	for _, name := range []string{"postgres", "nobody"} {
		uid, gid, err := lookupAccount(name)
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &account{name: name, uid: uid, gid: gid}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no account postgres or nobody to run it as: " +
		"add one, run belfry as another user, or set BELFRY_DATABASE_URL")
}

// Credential is as whom a server runs that is started here: nil, as the caller itself,
// unless that is root.
func Credential() (*syscall.Credential, error) {
	acct, err := serverAccount()
	return acct.credential(), err
}

func lookupAccount(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, fmt.Errorf("look up account %s: %w", name, err)
	}
	uid64, errU := strconv.ParseUint(u.Uid, 10, 32)
	gid64, errG := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		return 0, 0, fmt.Errorf("look up account %s: %w", name, err)
	}
	return int(uid64), int(gid64), nil
}

// accountOf returns the account that owns an existing cluster: PostgreSQL
// insists that this one runs it.
func accountOf(dir string) (*account, error) {
	uid, gid, err := owner(dir)
	if err != nil {
		return nil, err
	}
	name := strconv.Itoa(uid)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return &account{name: name, uid: uid, gid: gid}, nil
}

// credential is what a child process is to run as; nil for no change.
func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// give makes the account the owner of path.
func (a *account) give(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// effectiveUID is the user id the server runs with.
func (a *account) effectiveUID() int {
	if a == nil {
		return os.Geteuid()
	}
	return a.uid
}

// canEnter reports whether the account may pass through every directory down to
// dir. Parts that do not exist yet do not count: this package will create them.
// It judges by mode bits and so knows nothing of access control lists.
func (a *account) canEnter(dir string) bool {
	if a == nil || a.uid == 0 {
		return true
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	for {
		info, err := os.Stat(dir)
		if err == nil {
			stat, ok := info.Sys().(*syscall.Stat_t)
			if !ok || !a.mayPass(info.Mode(), stat) {
				return false
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// mayPass applies the one class of mode bits that counts for the account.
func (a *account) mayPass(mode os.FileMode, stat *syscall.Stat_t) bool {
	switch {
	case int(stat.Uid) == a.uid:
		return mode&0o100 != 0
	case int(stat.Gid) == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// owner returns who owns path, without following a symbolic link.
func owner(path string) (uid, gid int, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("owner of %s: not known on this system", path)
	}
	return int(stat.Uid), int(stat.Gid), nil
}
