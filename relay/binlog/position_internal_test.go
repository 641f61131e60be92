package binlog

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/packet"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/stretchr/testify/require"
)

const server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

func TestAPositionCountsTransactions(t *testing.T) {
	t.Parallel()
	p, err := parsePosition(false, server+":1-5:8,\n"+strings.Replace(server, "3e", "4e", 1)+":1")
	require.NoError(t, err)
	was := p.clone()
	sid := []byte{0x3e, 0x11, 0xfa, 0x47, 0x71, 0xca, 0x11, 0xe1, 0x9e, 0x33, 0xc8, 0x0a, 0xa9, 0x42, 0x95, 0x62}
	for _, n := range []int64{6, 7, 9, 9} {
		p.add(&replication.GTIDEvent{SID: sid, GNO: n})
	}
	require.Equal(t, server+":1-9,"+strings.Replace(server, "3e", "4e", 1)+":1", p.String())
	require.Contains(t, was.String(), ":1-5:8", "the clone is another set")
	require.EqualValues(t, 3, p.after(was))
	require.Zero(t, was.after(p))

	p, err = parsePosition(true, "0-1-100,7-2-3")
	require.NoError(t, err)
	was = p.clone()
	p.add(&replication.MariadbGTIDEvent{GTID: gomysql.MariadbGTID{DomainID: 0, ServerID: 2, SequenceNumber: 105}})
	p.add(&replication.MariadbGTIDEvent{GTID: gomysql.MariadbGTID{DomainID: 9, ServerID: 2, SequenceNumber: 1}})
	require.Equal(t, "0-2-105,7-2-3,9-2-1", p.String(), "a server before the failover is left out")
	require.Equal(t, "0-1-100,7-2-3", was.String())
	require.EqualValues(t, 6, p.after(was))
}

func TestAPositionOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	for text, mariadb := range map[string]bool{"0-1-100": false, server + ":tag:1-5": false, server + ":1": true, "0-1": true, "x-1-1": true, "0-1--1": true} {
		_, err := parsePosition(mariadb, text)
		require.ErrorIs(t, err, ErrNotSetUp, text)
	}
	for _, mariadb := range []bool{true, false} {
		p, err := parsePosition(mariadb, "")
		require.NoError(t, err)
		require.Empty(t, p.String())
	}
}

// The server sends a sign of life each keepalive. A connection that is dead on the way brings nothing.
func TestASilentConnectionIsLeft(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	d := &dump{raw: ours, conn: &client.Conn{Conn: packet.NewConn(ours)}, silence: 10 * time.Millisecond}
	require.ErrorContains(t, d.packet(), "the server was silent for 10ms")
	require.NoError(t, errors.Join(ours.Close(), theirs.Close()))
}
