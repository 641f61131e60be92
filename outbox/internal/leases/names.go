// Package leases names, renews and gives back leases. A lease keeps other processes from a row for
// a time. The package does not know what a lease holds; the user of the package says how to renew
// and to give back a lease.
package leases

import (
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// MaxOwner is the most characters of an owner: locked_by has 128 characters, and the number
// of a lease needs the rest.
const MaxOwner = 112

// Names gives each lease a name of its own: the owner and a number, as in
// "web-1/mc2k0w1f9a". The numbers begin at the time in microseconds, so that a process with
// the same owner that ran before has given other names. Names is safe for concurrent use.
type Names struct {
	Owner string
	last  atomic.Int64
}

// NewNames makes the names of an owner.
func NewNames(owner string) *Names {
	n := &Names{Owner: owner}
	n.last.Store(time.Now().UnixMicro())
	return n
}

// Next is a new name.
func (n *Names) Next() string {
	return n.Owner + "/" + strconv.FormatInt(n.last.Add(1), 36)
}

// NewOwner names this process: host, process id and a random part, because another process
// may get the same id later.
func NewOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	host = strings.ToValidUTF8(host, "")
	if len(host) > 64 {
		host = strings.ToValidUTF8(host[:64], "")
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
}
