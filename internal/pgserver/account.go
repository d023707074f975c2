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

// account is the unprivileged account that runs watchdog and server for root; nil
// everywhere else, where they run as the user itself.
type account struct {
	Name     string
	UID, GID int
}

// serverAccount returns nil unless this process is root; then postgres if there
// is such an account and otherwise nobody.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the account of everybody but root, by the type's definition
	}
	for _, name := range []string{"postgres", "nobody"} {
		a, err := lookupAccount(name)
		var unknown user.UnknownUserError
		if !errors.As(err, &unknown) {
			return a, err
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no account postgres or nobody to run it as: " +
		"add one, run belfry as another user, or set BELFRY_DATABASE_URL")
}

// Credential is as whom a server runs that is started here: nil, as the caller itself,
// unless that is root.
func Credential() (*syscall.Credential, error) {
	a, err := serverAccount()
	if a == nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}, nil //nolint:gosec // ids of accounts are 32 bits
}

func lookupAccount(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("look up account %s: %w", name, err)
	}
	uid, errU := strconv.ParseUint(u.Uid, 10, 32)
	gid, errG := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		return nil, fmt.Errorf("look up account %s: %w", name, err)
	}
	return &account{Name: name, UID: int(uid), GID: int(gid)}, nil
}

// ownerOf returns the account that owns path, without following a symbolic link.
func ownerOf(path string) (*account, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("owner of %s: not known on this system", path)
	}
	name := strconv.Itoa(int(stat.Uid))
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return &account{Name: name, UID: int(stat.Uid), GID: int(stat.Gid)}, nil
}

// become gives up the rights of root for those of the account.
func (a *account) become() error {
	if a == nil {
		return nil
	}
	for _, step := range []func() error{
		func() error { return syscall.Setgroups([]int{}) },
		func() error { return syscall.Setgid(a.GID) },
		func() error { return syscall.Setuid(a.UID) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("become %s: %w", a.Name, err)
		}
	}
	return nil
}

// effectiveUID is the user id the server runs with.
func (a *account) effectiveUID() int {
	if a == nil {
		return os.Geteuid()
	}
	return a.UID
}

// canEnter reports whether the account may pass through every directory down to
// dir. Parts that do not exist yet do not count: this package will create them.
// It judges by mode bits and so knows nothing of access control lists.
func (a *account) canEnter(dir string) bool {
	if a == nil || a.UID == 0 {
		return true
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	for {
		if info, err := os.Stat(dir); err == nil && !a.mayPass(info) {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// mayPass applies the one class of mode bits that counts for the account.
func (a *account) mayPass(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return false
	case int(stat.Uid) == a.UID:
		return info.Mode()&0o100 != 0
	case int(stat.Gid) == a.GID:
		return info.Mode()&0o010 != 0
	default:
		return info.Mode()&0o001 != 0
	}
}
