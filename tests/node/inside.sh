#!/bin/bash
# The first process of a cluster's namespaces (net, mount, pid, uts): starts all parts, and ends with all of them.
# Given by nodes.py: $R the cluster's folder, $NODES how many nodes, $B the binaries' folder, $GROUP the name of its cgroups,
# $LISTENING the descriptor of a socket of the machine's loopback, $FAMILIES the IP families, the first of which is that of Services,
# $SERVICES their addresses.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=$R
hostname node-1
ip link set lo up
# A kernel may know no dummy interfaces; a bridge without ports carries an address, too.
ip link add node0 type bridge
ip link set node0 up

node() { [ $1 = 4 ] && echo 10.77.0.$2 || echo fd77::$2; }
pods() { [ $1 = 4 ] && echo 10.88.$2.0/24 || echo fd88:0:0:$2::/64; }
# The address of node $1 at link $2, and the way out by the last number $3; what it prints is run in the node's network.
addressed() {
  local f
  for f in $FAMILIES; do
    if [ $f = 4 ]; then
      echo "ip addr add $(node 4 $1)/16 dev $2; ip route add default via 10.77.$3 dev $2; sysctl -qw net.ipv4.ip_forward=1"
    else
      echo "ip addr add $(node 6 $1)/64 dev $2 nodad; sysctl -qw net.ipv6.conf.all.forwarding=1; ip -6 route add default via fd77::${3#*.} dev $2"
    fi
  done
}
FIRST=${FAMILIES%% *}
HOST=$(node $FIRST 1)
eval "$(addressed 1 node0 255.254)"
mount --make-rshared /

# What node programs write beside their own folder, wherever they are told to live.
for each in /run /var/log /var/lib/kubelet /var/lib/cni; do mount -t tmpfs tmpfs $each; done
mkdir -p /var/log/containers /run/lock

# The sysfs of this network namespace, with the cgroups of the machine.
mkdir -p $R/cgroups
mount --rbind /sys/fs/cgroup $R/cgroups
mount -t sysfs sysfs /sys
mount --rbind $R/cgroups /sys/fs/cgroup
for hierarchy in /sys/fs/cgroup/*/; do
  for i in $(seq $NODES); do mkdir -p $hierarchy$GROUP/$i 2> /dev/null || true; done
done

# A kubelet counts the processors of all NUMA nodes: eight here, each NUMA node having the machine's first two.
F=$R/numa
mkdir -p $F
mount -t tmpfs tmpfs $F
for n in 0 1 2 3; do
  mkdir -p $F/node$n
  cp -r /sys/devices/system/node/node0/{meminfo,distance,hugepages,cpulist} $F/node$n/ 2> /dev/null || true
  for c in 0 1; do
    mkdir -p $F/node$n/cpu$c/topology
    echo $c > $F/node$n/cpu$c/topology/core_id
    echo 0 > $F/node$n/cpu$c/topology/physical_package_id
  done
done
mount --bind $F /sys/devices/system/node

# Beside each part's number is what starts it again: nodes.py kills and starts some.
part() {
  local name=$1
  shift
  "$@" >> $R/logs/$name.log 2>&1 &
  echo $! > $R/parts/$name
  { printf 'exec '; printf '%q ' "$@"; } > $R/parts/$name.sh
}

part etcd $B/etcd --data-dir=$R/etcd --unsafe-no-fsync \
  --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
  --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
  --initial-cluster=default=http://127.0.0.1:2380
part kube-apiserver $B/kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --bind-address=$([ "$FAMILIES" = 4 ] && echo 0.0.0.0 || echo ::) \
  --advertise-address=$HOST --cert-dir=$R/apiserver --service-account-key-file=$R/sa.key \
  --service-account-signing-key-file=$R/sa.key --service-account-issuer=https://kubernetes.default.svc \
  --service-cluster-ip-range=$SERVICES --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
  --token-auth-file=$R/tokens.csv --allow-privileged=true --kubelet-preferred-address-types=InternalIP \
  --requestheader-client-ca-file=$R/requestheader-ca.crt --requestheader-allowed-names=front-proxy-client \
  --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
  --requestheader-extra-headers-prefix=X-Remote-Extra- \
  --proxy-client-cert-file=$R/front-proxy-client.crt --proxy-client-key-file=$R/front-proxy-client.key
part forward python3 $HERE/forward.py $LISTENING $HOST 6443

for i in $(seq $NODES); do
  D=$R/node-$i
  inside=(env)
  if [ $i -gt 1 ]; then
    unshare --net sleep infinity &
    S=$!
    until [ "$(readlink /proc/$S/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
    ip link add veth$i type veth peer name eth0 netns $S
    ip link set veth$i master node0 up
    inside=(nsenter "--net=/proc/$S/ns/net")
    "${inside[@]}" bash -ec "ip link set lo up; ip link set eth0 up; $(addressed $i eth0 0.1)"
    for f in $FAMILIES; do
      for j in $(seq $NODES); do [ $j = $i ] || "${inside[@]}" ip route add $(pods $f $j) via $(node $f $j); done
      ip route add $(pods $f $i) via $(node $f $i)
    done
  fi
  echo "${inside[*]}" > $D/inside
  part containerd-$i "${inside[@]}" containerd --config $D/containerd.toml
done

# Images are there before pods: after a failed pull of a name, a kubelet pulls it again though it is there.
for i in $(seq $NODES); do
  (
    read -ra inside < $R/node-$i/inside
    ctr="${inside[*]} ctr --address $R/node-$i/containerd.sock --namespace k8s.io"
    until $ctr version > /dev/null 2>&1; do sleep 0.1; done
    for archive in $ARCHIVES; do $ctr images import $archive; done > $R/logs/images-$i.log 2>&1
    touch $R/node-$i/loaded
  ) &
done
until $B/kubectl --kubeconfig $R/inside.kubeconfig get --raw /readyz > /dev/null 2>&1; do sleep 0.2; done
part kube-controller-manager $B/kube-controller-manager --kubeconfig=$R/inside.kubeconfig --leader-elect=false \
  --service-account-private-key-file=$R/sa.key --root-ca-file=$R/apiserver/apiserver.crt \
  --use-service-account-credentials=true --secure-port=0
part kube-scheduler $B/kube-scheduler --kubeconfig=$R/inside.kubeconfig --leader-elect=false --secure-port=0
for i in $(seq $NODES); do
  D=$R/node-$i
  read -ra inside < $D/inside
  addresses=$(for f in $FAMILIES; do node $f $i; done | paste -sd,)
  until [ -e $D/loaded ]; do sleep 0.1; done
  part kubelet-$i "${inside[@]}" $B/kubelet --config=$D/kubelet.yaml --kubeconfig=$R/node-$i.kubeconfig \
    --hostname-override=node-$i --node-ip=$addresses --root-dir=$D/kubelet --cert-dir=$D/pki --v=2
  part kube-proxy-$i "${inside[@]}" $B/kube-proxy --config=$D/proxy.yaml --v=2
done
wait
