// One TCP flow across an outage, in ns-3: what `mainstay model failover --ns3` shows beside the model.
//
//   client ── delay, random losses ── edge ──✗── server       ✗: the outage blocks both directions
//
// The cut is at the receiver's end, as in [HALR] section 7.1. With local recovery the edge keeps the packets that the outage blocks,
// and resends them when it ends. The TCP is ns-3's own: NewReno, SACK, timestamps. The program sets its attributes, and `BoundedReno` bounds
// its window.
//
// For each seed the flow runs undisturbed first. That run tells when the packet reaches the cut that the outage is to block first. For
// each outage the flow then runs twice, without and with recovery. The outage begins before that packet by a share (the run's phase) of the
// time in which a first packet can arrive. So runs of one program cover all phases evenly.
//
// It prints a first line `ns-3 failover 1`, then a line of columns for each outage and seed:
//
//   kind outage_s seed undisturbed_s stall_without_s completion_without_s stall_with_s completion_with_s
//
// A flow that has not completed has the completion -1.

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/ppp-header.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace ns3;

namespace
{

/// When the flow begins, in seconds of the simulation: the links are up by then.
constexpr double CONNECTS_AT_S = 1.0;
/// Seconds after the outage in which a flow must have completed.
constexpr double GIVES_UP_AFTER_S = 600.0;
/// The least slow-start threshold in segments (RFC 5681 section 3.1).
constexpr uint32_t THRESHOLD_MIN = 2;
/// The port of the server.
constexpr uint16_t PORT = 80;

/// Parameters of all runs: times in seconds, windows in segments.
struct Setup
{
    std::string kind = "bulk";
    std::string outages = "3";
    uint32_t runs = 41;
    uint64_t firstSeed = 1;
    double rtt = 0.1;
    std::string rate = "10Gbps";
    uint32_t segmentBytes = 1448;
    uint32_t segments = 1000;
    uint32_t delivered = 500;
    double loss = 0.0;
    double synLoss = 0.0;
    uint32_t initialWindow = 1;
    uint32_t windowMax = 64;
    /// The first timeout of a SYN; further ones double.
    double synTimeout = 1.0;
    /// The least retransmission timeout of data.
    double rtoMin = 0.2;
    /// What the retransmission timeout exceeds the smoothed round-trip time by at least: Linux's least timeout is of this kind.
    double rtoMargin = 0.2;
    /// Timeouts of SYNs and every timeout of data lower the threshold; otherwise the first one of a loss does (RFC 5681 section 3.1).
    bool collapsesThreshold = false;
    bool startsWithOutage = false;
    bool resendsAll = false;
    double recoveryTime = 0.0;
    bool trace = false;

    bool InterruptsHandshake() const
    {
        return kind == "syn" || kind == "syn_bulk";
    }
};

/// ns-3's NewReno with a largest congestion window, and with one of two rules for the threshold after timeouts.
///
/// ns-3 halves the flight at every timeout, so a second one leaves two segments, as in ns-2. The timeout of a SYN leaves the threshold as it is;
/// that it leaves two segments, as [HALR] section 4.2 describes, is added here.
///
/// The receiver's buffer cannot be that bound: ns-3 3.37 dereferences a null pointer when selective acknowledgements arrive while
/// the receiver's window is full.
class BoundedReno : public TcpNewReno
{
  public:
    static TypeId GetTypeId()
    {
        static TypeId type = TypeId("BoundedReno")
                                 .SetParent<TcpNewReno>()
                                 .AddConstructor<BoundedReno>()
                                 .AddAttribute("WindowMax",
                                               "largest congestion window in segments",
                                               UintegerValue(64),
                                               MakeUintegerAccessor(&BoundedReno::m_windowMax),
                                               MakeUintegerChecker<uint32_t>(1))
                                 .AddAttribute("CollapsesThreshold",
                                               "whether every timeout halves the threshold, and that of a SYN sets it to two segments",
                                               BooleanValue(false),
                                               MakeBooleanAccessor(&BoundedReno::m_collapsesThreshold),
                                               MakeBooleanChecker())
                                 .AddAttribute("Late",
                                               "a first acknowledgement from this time on follows a SYN's timeout",
                                               TimeValue(Time()),
                                               MakeTimeAccessor(&BoundedReno::m_late),
                                               MakeTimeChecker());
        return type;
    }

    std::string GetName() const override
    {
        return "BoundedReno";
    }

    void IncreaseWindow(Ptr<TcpSocketState> state, uint32_t acknowledged) override
    {
        if (!m_hasStarted && m_collapsesThreshold && Simulator::Now() >= m_late)
        {
            state->m_ssThresh = THRESHOLD_MIN * state->m_segmentSize;
        }
        m_hasStarted = true;
        TcpNewReno::IncreaseWindow(state, acknowledged);
        state->m_cWnd = std::min(state->m_cWnd.Get(), m_windowMax * state->m_segmentSize);
    }

    uint32_t GetSsThresh(Ptr<const TcpSocketState> state, uint32_t bytesInFlight) override
    {
        bool isRepeated = state->m_congState == TcpSocketState::CA_LOSS;
        if (isRepeated && !m_collapsesThreshold)
        {
            return state->m_ssThresh;
        }
        return TcpNewReno::GetSsThresh(state, bytesInFlight);
    }

    Ptr<TcpCongestionOps> Fork() override
    {
        return CopyObject<BoundedReno>(this);
    }

  private:
    uint32_t m_windowMax = 64;
    bool m_collapsesThreshold = false;
    Time m_late;
    bool m_hasStarted = false;
};

/// An outage, in times of the simulation.
struct Outage
{
    Time from;
    Time until;
    bool isRecovered;
};

/// What came of a flow.
struct Outcome
{
    /// When the packet reached the cut that an outage is to block first.
    std::optional<Time> interruptedAt;
    /// From the end of the outage to the first packet that passed, in seconds.
    double stall = 0.0;
    /// From the first SYN to the acknowledgement of the last segment, in seconds; -1 if it never came.
    double completion = -1.0;
};

/// What the cut sees of a packet.
struct Segment
{
    TcpHeader tcp;
    uint32_t bytes;

    /// A packet with the headers of PPP, IPv4 and TCP.
    static Segment Of(Ptr<const Packet> packet)
    {
        Ptr<Packet> copy = packet->Copy();
        PppHeader ppp;
        Ipv4Header ip;
        Segment segment;
        copy->RemoveHeader(ppp);
        copy->RemoveHeader(ip);
        copy->RemoveHeader(segment.tcp);
        segment.bytes = copy->GetSize();
        return segment;
    }

    bool IsSyn() const
    {
        return (tcp.GetFlags() & TcpHeader::SYN) != 0;
    }
};

/// Random losses of SYNs and of data on the way to the edge.
class RandomLosses : public ErrorModel
{
  public:
    RandomLosses(const Setup& setup, uint64_t seed)
        : m_random(seed),
          m_loss(setup.loss),
          m_synLoss(setup.synLoss)
    {
    }

  private:
    bool DoCorrupt(Ptr<Packet> packet) override
    {
        Segment segment = Segment::Of(packet);
        if (!segment.IsSyn() && segment.bytes == 0)
        {
            return false;
        }
        double rate = segment.IsSyn() ? m_synLoss : m_loss;
        return std::uniform_real_distribution<double>(0.0, 1.0)(m_random) < rate;
    }

    void DoReset() override
    {
    }

    std::mt19937_64 m_random;
    double m_loss;
    double m_synLoss;
};

/// The cut before the server: blocks packets in the outage, keeps them for recovery, and notes what passes.
class Cut : public ErrorModel
{
  public:
    Cut(const Setup& setup, std::optional<Outage> outage, Ptr<PointToPointNetDevice> device)
        : m_setup(setup),
          m_outage(outage),
          m_device(device)
    {
        if (outage && outage->isRecovered)
        {
            Time at = outage->until + Seconds(setup.recoveryTime);
            Simulator::Schedule(at, &Cut::Resend, this);
        }
    }

    /// Whether the outage blocks a packet now.
    bool Blocks() const
    {
        Time now = Simulator::Now();
        return m_outage && now >= m_outage->from && now < m_outage->until;
    }

    std::optional<Time> InterruptedAt() const
    {
        return m_interruptedAt;
    }

    double Stall() const
    {
        return m_stall;
    }

  private:
    bool DoCorrupt(Ptr<Packet> packet) override
    {
        Segment segment = Segment::Of(packet);
        bool isData = segment.bytes > 0;
        if (!segment.IsSyn() && !isData)
        {
            return Blocks();
        }
        Time now = Simulator::Now();
        bool isFirst = m_setup.InterruptsHandshake()
                           ? segment.IsSyn()
                           : isData && m_received.size() >= m_setup.delivered;
        if (isFirst && !m_interruptedAt)
        {
            m_interruptedAt = now;
        }
        uint32_t sequence = segment.tcp.GetSequenceNumber().GetValue();
        if (Blocks())
        {
            m_hasBlocked = true;
            m_kept[sequence] = packet->Copy();
            return true;
        }
        if (m_hasBlocked && !m_hasResumed && now >= m_outage->until)
        {
            m_hasResumed = true;
            m_stall = (now - m_outage->until).GetSeconds();
        }
        if (isData)
        {
            m_received.insert(sequence);
        }
        return false;
    }

    void DoReset() override
    {
    }

    /// The edge resends what it kept: all, or the lowest segment.
    void Resend()
    {
        std::map<uint32_t, Ptr<Packet>> kept;
        kept.swap(m_kept);
        for (auto& [sequence, packet] : kept)
        {
            m_device->Receive(packet->Copy());
            if (!m_setup.resendsAll)
            {
                break;
            }
        }
    }

    const Setup& m_setup;
    std::optional<Outage> m_outage;
    Ptr<PointToPointNetDevice> m_device;
    /// By sequence number; a later transmission of a segment replaces an earlier one.
    std::map<uint32_t, Ptr<Packet>> m_kept;
    std::set<uint32_t> m_received;
    std::optional<Time> m_interruptedAt;
    double m_stall = 0.0;
    bool m_hasBlocked = false;
    bool m_hasResumed = false;
};

/// The way back from the server, which the outage blocks too.
class WayBack : public ErrorModel
{
  public:
    explicit WayBack(Ptr<Cut> cut)
        : m_cut(cut)
    {
    }

  private:
    bool DoCorrupt(Ptr<Packet>) override
    {
        return m_cut->Blocks();
    }

    void DoReset() override
    {
    }

    Ptr<Cut> m_cut;
};

/// One flow.
class Flow
{
  public:
    Flow(const Setup& setup, uint64_t seed, std::optional<Outage> outage)
        : m_setup(setup)
    {
        NodeContainer nodes(3);
        InternetStackHelper().Install(nodes);
        PointToPointHelper link;
        link.SetDeviceAttribute("DataRate", StringValue(setup.rate));
        // The edge forwards and the queues drop nothing: only the outage and the random losses do.
        link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("200000p"));
        link.SetChannelAttribute("Delay", TimeValue(Seconds(setup.rtt / 2.0)));
        NetDeviceContainer outer = link.Install(nodes.Get(0), nodes.Get(1));
        link.SetChannelAttribute("Delay", TimeValue(Seconds(0.0)));
        NetDeviceContainer inner = link.Install(nodes.Get(1), nodes.Get(2));
        Ipv4AddressHelper("10.0.1.0", "255.255.255.0").Assign(outer);
        Ipv4InterfaceContainer interfaces = Ipv4AddressHelper("10.0.2.0", "255.255.255.0").Assign(inner);
        TrafficControlHelper().Uninstall(outer);
        TrafficControlHelper().Uninstall(inner);
        Ipv4GlobalRoutingHelper::PopulateRoutingTables();

        Ptr<PointToPointNetDevice> server = DynamicCast<PointToPointNetDevice>(inner.Get(1));
        m_cut = Create<Cut>(setup, outage, server);
        outer.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(Create<RandomLosses>(setup, seed)));
        server->SetAttribute("ReceiveErrorModel", PointerValue(m_cut));
        inner.Get(0)->SetAttribute("ReceiveErrorModel", PointerValue(Create<WayBack>(m_cut)));

        m_listener = Socket::CreateSocket(nodes.Get(2), TcpSocketFactory::GetTypeId());
        m_listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
        m_listener->Listen();
        m_listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                      MakeCallback(&Flow::Accept, this));
        m_client = Socket::CreateSocket(nodes.Get(0), TcpSocketFactory::GetTypeId());
        m_client->TraceConnectWithoutContext("HighestRxAck", MakeCallback(&Flow::Acknowledged, this));
        if (setup.trace)
        {
            m_client->TraceConnectWithoutContext("CongestionWindow", MakeCallback(&Flow::ShowWindow, this));
            m_client->TraceConnectWithoutContext("SlowStartThreshold", MakeCallback(&Flow::ShowThreshold, this));
            m_client->TraceConnectWithoutContext("RTO", MakeCallback(&Flow::ShowTimeout, this));
        }
        m_client->SetConnectCallback(MakeCallback(&Flow::Connected, this), MakeNullCallback<void, Ptr<Socket>>());
        m_server = InetSocketAddress(interfaces.GetAddress(1), PORT);
        Simulator::Schedule(Seconds(CONNECTS_AT_S), &Flow::Connect, this);
    }

    Outcome Run()
    {
        Simulator::Run();
        Outcome outcome{m_cut->InterruptedAt(), m_cut->Stall(), m_completion};
        m_client = nullptr;
        m_listener = nullptr;
        m_accepted = nullptr;
        m_cut = nullptr;
        Simulator::Destroy();
        return outcome;
    }

  private:
    uint32_t Bytes() const
    {
        return m_setup.segments * m_setup.segmentBytes;
    }

    void Connect()
    {
        m_client->Connect(m_server);
    }

    void Connected(Ptr<Socket> socket)
    {
        socket->Send(Create<Packet>(Bytes()));
    }

    void Accept(Ptr<Socket> socket, const Address&)
    {
        m_accepted = socket;
        socket->SetRecvCallback(MakeCallback(&Flow::Read, this));
    }

    void Read(Ptr<Socket> socket)
    {
        while (socket->Recv())
        {
        }
    }

    /// The last segment's acknowledgement ends the flow. The SYN has the sequence number 0.
    void Acknowledged(SequenceNumber32, SequenceNumber32 next)
    {
        if (next.GetValue() > Bytes() && m_completion < 0.0)
        {
            m_completion = Simulator::Now().GetSeconds() - CONNECTS_AT_S;
            Simulator::Stop();
        }
    }

    void ShowWindow(uint32_t, uint32_t bytes)
    {
        Show("window", bytes / double(m_setup.segmentBytes));
    }

    void ShowThreshold(uint32_t, uint32_t bytes)
    {
        Show("threshold", bytes / double(m_setup.segmentBytes));
    }

    void ShowTimeout(Time, Time timeout)
    {
        Show("timeout", timeout.GetSeconds());
    }

    void Show(const char* what, double value)
    {
        std::cerr << Simulator::Now().GetSeconds() - CONNECTS_AT_S << " " << what << " " << value << "\n";
    }

    const Setup& m_setup;
    Ptr<Cut> m_cut;
    Ptr<Socket> m_listener;
    Ptr<Socket> m_client;
    Ptr<Socket> m_accepted;
    Address m_server;
    double m_completion = -1.0;
};

Outcome
RunFlow(const Setup& setup, uint64_t seed, std::optional<Outage> outage)
{
    Flow flow(setup, seed, outage);
    Time ends = outage ? outage->until : Seconds(CONNECTS_AT_S);
    Simulator::Stop(ends + Seconds(GIVES_UP_AFTER_S));
    return flow.Run();
}

/// Sets the attributes of ns-3's TCP.
void
Configure(const Setup& setup)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(BoundedReno::GetTypeId()));
    Config::SetDefault("BoundedReno::WindowMax", UintegerValue(setup.windowMax));
    Config::SetDefault("BoundedReno::CollapsesThreshold", BooleanValue(setup.collapsesThreshold));
    Config::SetDefault("BoundedReno::Late", TimeValue(Seconds(CONNECTS_AT_S + setup.synTimeout + setup.rtt)));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(setup.rtoMin)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(Seconds(setup.rtoMargin)));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(setup.synTimeout)));
    // As many as Linux's tcp_syn_retries and tcp_retries2, whose connections outlast the longest outage.
    Config::SetDefault("ns3::TcpSocket::ConnCount", UintegerValue(7));
    Config::SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(15));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(setup.segmentBytes));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(setup.initialWindow));
    // Receivers acknowledge every segment.
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue((setup.segments + 1) * setup.segmentBytes));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(8 * setup.windowMax * setup.segmentBytes));
}

std::vector<double>
Numbers(const std::string& text)
{
    std::vector<double> numbers;
    std::stringstream stream(text);
    std::string number;
    while (std::getline(stream, number, ','))
    {
        numbers.push_back(std::stod(number));
    }
    return numbers;
}

/// Seconds by which the outage begins before the packet that it is to block first.
double
Lead(const Setup& setup, double outage, uint32_t run)
{
    if (setup.startsWithOutage)
    {
        return 0.0;
    }
    double range = setup.InterruptsHandshake() ? outage : std::min(outage, setup.rtt);
    return range * (run + 0.5) / setup.runs;
}

} // namespace

int
main(int count, char* arguments[])
{
    Setup setup;
    CommandLine line(__FILE__);
    line.AddValue("kind", "what the outage interrupts: syn, short, bulk or syn_bulk", setup.kind);
    line.AddValue("outages", "durations of outages, in seconds, separated by commas", setup.outages);
    line.AddValue("runs", "runs of each outage", setup.runs);
    line.AddValue("first-seed", "seed of the first run's losses", setup.firstSeed);
    line.AddValue("rtt", "round-trip time in seconds", setup.rtt);
    line.AddValue("rate", "rate of the links", setup.rate);
    line.AddValue("segment-bytes", "bytes of a segment", setup.segmentBytes);
    line.AddValue("segments", "segments of the flow", setup.segments);
    line.AddValue("delivered", "segments before an outage that interrupts data", setup.delivered);
    line.AddValue("loss", "loss rate of data", setup.loss);
    line.AddValue("syn-loss", "loss rate of SYNs", setup.synLoss);
    line.AddValue("initial-window", "initial congestion window in segments", setup.initialWindow);
    line.AddValue("window-max", "largest window in segments", setup.windowMax);
    line.AddValue("syn-timeout", "first timeout of a SYN, in seconds", setup.synTimeout);
    line.AddValue("rto-min", "least retransmission timeout, in seconds", setup.rtoMin);
    line.AddValue("rto-margin", "least margin of it over the round-trip time, in seconds", setup.rtoMargin);
    line.AddValue("collapses-threshold", "SYN timeouts and every timeout of data lower the threshold", setup.collapsesThreshold);
    line.AddValue("starts-with-outage", "the outage begins with the first blocked packet", setup.startsWithOutage);
    line.AddValue("resends-all", "the edge resends all that was lost, not the lowest segment", setup.resendsAll);
    line.AddValue("recovery-time", "seconds until the edge has resent", setup.recoveryTime);
    line.AddValue("trace", "show windows, thresholds and timeouts on standard error", setup.trace);
    line.Parse(count, arguments);

    Configure(setup);
    std::vector<double> outages = Numbers(setup.outages);
    std::cout << "ns-3 failover 1\n" << std::setprecision(9);
    for (uint32_t run = 0; run < setup.runs; run++)
    {
        uint64_t seed = setup.firstSeed + run;
        Outcome undisturbed = RunFlow(setup, seed, std::nullopt);
        if (!undisturbed.interruptedAt)
        {
            std::cerr << "no packet of the flow follows the delivered segments\n";
            return 1;
        }
        for (double duration : outages)
        {
            Time from = *undisturbed.interruptedAt - Seconds(Lead(setup, duration, run));
            Time until = from + Seconds(duration);
            Outcome without = RunFlow(setup, seed, Outage{from, until, false});
            Outcome with = RunFlow(setup, seed, Outage{from, until, true});
            std::cout << setup.kind << " " << duration << " " << seed << " " << undisturbed.completion << " "
                      << without.stall << " " << without.completion << " " << with.stall << " " << with.completion
                      << std::endl;
        }
    }
    return 0;
}
