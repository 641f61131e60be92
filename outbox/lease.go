package outbox

import (
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// leaseNames gives each claim and each write a lease of its own name: the owner
// and a number, as in "web-1/mc2k0w1f9a". The numbers begin at the time in
// microseconds, so that those of a process with the same owner that ran before
// are not given again.
type leaseNames struct {
	owner string
	last  atomic.Int64
}

// maxOwnerLength leaves room for the number in locked_by, which has 128
// characters.
const maxOwnerLength = 112

func newLeaseNames(owner string) *leaseNames {
	n := &leaseNames{owner: owner}
	n.last.Store(time.Now().UnixMicro())
	return n
}

func (n *leaseNames) next() string {
	return n.owner + "/" + strconv.FormatInt(n.last.Add(1), 36)
}

// newOwner names this process for leases: host, process id and a random part,
// because another process may get the same id later.
func newOwner() string {
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
