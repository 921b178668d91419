#!/bin/bash
# The first process of a cluster's namespaces (net, mount, pid, uts): starts all parts, and ends with all of them.
# Given by nodes.py: $R the cluster's folder, $NODES how many nodes, $B the binaries' folder, $GROUP the name of its cgroups,
# $LISTENING the descriptor of a socket of the machine's loopback.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=$R
hostname node-1
ip link set lo up
# A kernel may know no dummy interfaces; a bridge without ports carries an address, too.
ip link add node0 type bridge
ip addr add 10.77.0.1/16 dev node0
ip link set node0 up
ip route add default via 10.77.255.254 dev node0
sysctl -qw net.ipv4.ip_forward=1
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

part() {
  local name=$1
  shift
  "$@" > $R/logs/$name.log 2>&1 &
  echo "$name $!" >> $R/parts
}

part etcd $B/etcd --data-dir=$R/etcd --unsafe-no-fsync \
  --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
  --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
  --initial-cluster=default=http://127.0.0.1:2380
part kube-apiserver $B/kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --bind-address=0.0.0.0 \
  --advertise-address=10.77.0.1 --cert-dir=$R/apiserver --service-account-key-file=$R/sa.key \
  --service-account-signing-key-file=$R/sa.key --service-account-issuer=https://kubernetes.default.svc \
  --service-cluster-ip-range=10.96.0.0/24 --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
  --token-auth-file=$R/tokens.csv --allow-privileged=true --kubelet-preferred-address-types=InternalIP \
  --requestheader-client-ca-file=$R/requestheader-ca.crt --requestheader-allowed-names=front-proxy-client \
  --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
  --requestheader-extra-headers-prefix=X-Remote-Extra- \
  --proxy-client-cert-file=$R/front-proxy-client.crt --proxy-client-key-file=$R/front-proxy-client.key
part forward python3 $HERE/forward.py $LISTENING 10.77.0.1 6443

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
    "${inside[@]}" bash -ec "
      ip link set lo up; ip addr add 10.77.0.$i/16 dev eth0; ip link set eth0 up
      ip route add default via 10.77.0.1; sysctl -qw net.ipv4.ip_forward=1
      for j in \$(seq $NODES); do [ \$j = $i ] || ip route add 10.88.\$j.0/24 via 10.77.0.\$j; done"
    ip route add 10.88.$i.0/24 via 10.77.0.$i
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
  until [ -e $D/loaded ]; do sleep 0.1; done
  part kubelet-$i "${inside[@]}" $B/kubelet --config=$D/kubelet.yaml --kubeconfig=$R/node-$i.kubeconfig \
    --hostname-override=node-$i --node-ip=10.77.0.$i --root-dir=$D/kubelet --cert-dir=$D/pki --v=2
  part kube-proxy-$i "${inside[@]}" $B/kube-proxy --config=$D/proxy.yaml --v=2
done
wait
