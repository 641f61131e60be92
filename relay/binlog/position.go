package binlog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// position is a place in the log: the transactions before it. A server of another kind would not understand it.
type position struct {
	mysql   *gomysql.MysqlGTIDSet // nil for MariaDB
	mariadb map[uint32]last
}

// last is the last transaction of a domain of MariaDB.
type last struct {
	server   uint32
	sequence uint64
}

// parsePosition reads a set of GTIDs as the server writes it.
func parsePosition(mariadb bool, text string) (position, error) {
	text = strings.Join(strings.Fields(text), "") // MySQL begins a line for each server
	if !mariadb {
		set, err := gomysql.ParseMysqlGTIDSet(text)
		if err != nil {
			return position{}, notSetUp("the set of GTIDs %.200q cannot be read; sets with tags are not supported", text)
		}
		return position{mysql: set.(*gomysql.MysqlGTIDSet)}, nil
	}
	p := position{mariadb: map[uint32]last{}}
	for _, one := range list(text) {
		parts := strings.Split(one, "-")
		if len(parts) != 3 {
			return position{}, notSetUp("the position %.200q is none of MariaDB", text)
		}
		domain, err1 := strconv.ParseUint(parts[0], 10, 32)
		server, err2 := strconv.ParseUint(parts[1], 10, 32)
		sequence, err3 := strconv.ParseUint(parts[2], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return position{}, notSetUp("the position %.200q is none of MariaDB", text)
		}
		p.mariadb[uint32(domain)] = last{uint32(server), sequence}
	}
	return p, nil
}

// String is the position as the server reads it.
func (p position) String() string {
	if p.mysql != nil {
		return p.mysql.String()
	}
	var all []string
	for _, domain := range slices.Sorted(maps.Keys(p.mariadb)) {
		l := p.mariadb[domain]
		all = append(all, fmt.Sprintf("%d-%d-%d", domain, l.server, l.sequence))
	}
	return strings.Join(all, ",")
}

func (p position) clone() position {
	if p.mysql != nil {
		return position{mysql: p.mysql.Clone().(*gomysql.MysqlGTIDSet)}
	}
	return position{mariadb: maps.Clone(p.mariadb)}
}

// add adds a transaction by the event that began it.
func (p position) add(gtid replication.Event) {
	switch g := gtid.(type) {
	case *replication.GTIDEvent:
		p.mysql.AddGTID([16]byte(g.SID), g.GNO)
	case *replication.MariadbGTIDEvent:
		p.mariadb[g.GTID.DomainID] = last{g.GTID.ServerID, g.GTID.SequenceNumber}
	}
}

// after counts the transactions of p that are not before the position q.
func (p position) after(q position) (n int64) {
	if p.mysql != nil {
		rest := p.clone().mysql
		_ = rest.Minus(*q.mysql) // has no errors
		for _, set := range rest.Sets {
			for _, i := range set.Intervals {
				n += i.Stop - i.Start
			}
		}
		return n
	}
	for domain, l := range p.mariadb {
		if was := q.mariadb[domain]; l.sequence > was.sequence {
			n += int64(l.sequence - was.sequence)
		}
	}
	return n
}
