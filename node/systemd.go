package node

import (
	"errors"
	"net"
	"strings"
	"time"
)

// NotifyManager sends the state of the process, such as READY=1, to the service manager; see
// sd_notify(3). socket is the value of NOTIFY_SOCKET; an empty value means that there is no manager.
func NotifyManager(socket, state string) error {
	if socket == "" {
		return nil
	}
	if name, abstract := strings.CutPrefix(socket, "@"); abstract {
		socket = "\x00" + name
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	err = conn.SetWriteDeadline(time.Now().Add(time.Second))
	if err == nil {
		_, err = conn.Write([]byte(state))
	}
	return errors.Join(err, conn.Close())
}
