#!/usr/bin/env python3
"""Writes vectors.txt: NAS messages as an independent codec encodes them.

The codec is pycrate (pip install pycrate, tested with 0.7.x), imported at generation time only; nothing of it is kept
here but the octets that it computes. Each line is

    <hex octets> <MESSAGE TYPE with _ for spaces> [field=value]...

Each message comes with its mandatory elements alone, with each optional element alone in each of its variants, and
with all of its optional elements. Run: python3 generate.py > vectors.txt
"""

import sys
from binascii import hexlify, unhexlify

from pycrate_mobile import TS24501_FGMM as MM
from pycrate_mobile import TS24501_FGSM as SM


def v(value, *fields):
    """A variant: the value for pycrate, and what it means as field=value."""
    return (value, fields)


PLMN = '99970'
GUTI = {'Type': 2, 'PLMN': '310410', 'AMFRegionID': 2, 'AMFSetID': 341, 'AMFPtr': 42, '5GTMSI': 0xdeadbeef}
STMSI = {'Type': 4, 'AMFSetID': 1021, 'AMFPtr': 63, '5GTMSI': 0x01020304}
IMEISV = {'Type': 5, 'Digits': '3512345678901234'}


def raw(hexa):
    return unhexlify(hexa)


def suci(plmn, rid, scheme, key, output):
    d = rid.ljust(4, 'f')  # pycrate does not fill the digits that are not used
    return {'Type': 1, 'Fmt': 0, 'Value': {
        'PLMN': plmn, 'RoutingInd': raw(d[1] + d[0] + d[3] + d[2]), 'ProtSchemeID': scheme, 'HNPKID': key,
        'Output': output}}


SUCI_NULL = suci(PLMN, '0', 0, 0, '0000000001')

IDENTITIES = [
    v(SUCI_NULL, 'id=suci', 'supi=999700000000001', 'rid=0', 'scheme=0'),
    v(suci('310410', '678', 0, 0, '123456789'), 'supi=310410123456789', 'rid=678'),
    v(suci('00101', '1234', 0, 0, '0123456789'), 'supi=001010123456789', 'rid=1234'),
    v(suci(PLMN, '12', 1, 27, {'ECCEphemPK': 32 * b'\x5a', 'CipherText': 5 * b'\xc1', 'MAC': 8 * b'\xab'}),
      'id=suci', 'rid=12', 'scheme=1', 'key=27', 'output=' + '5a' * 32 + 'c1' * 5 + 'ab' * 8),
    v(suci(PLMN, '99', 2, 255, {'ECCEphemPK': 33 * b'\x02', 'CipherText': 4 * b'\xc2', 'MAC': 8 * b'\xcd'}),
      'scheme=2', 'key=255', 'output=' + '02' * 33 + 'c2' * 4 + 'cd' * 8),
    v(suci(PLMN, '0', 13, 1, b'operator'), 'scheme=13', 'output=' + hexlify(b'operator').decode()),
    v(GUTI, 'id=guti', 'guti=310/410-2-341-42-deadbeef'),
    v({'Type': 3, 'Digits': '351234567890123'}, 'id=imei', 'pei=imei-351234567890123'),
    v(IMEISV, 'id=imeisv', 'pei=imeisv-3512345678901234'),
    v(STMSI, 'id=s-tmsi', 's_tmsi=1021-63-01020304'),
    v(None, 'id=none'),
    v({'Type': 6, 'MAURI': 0, 'MAC': b'\x02\x00\x5e\x10\x00\x01'}, 'mac=02005e100001/false'),
    v({'Type': 6, 'MAURI': 1, 'MAC': b'\x02\x00\x5e\x10\x00\x02'}, 'mac=02005e100002/true'),
    v({'Type': 7, 'EUI64': b'\x02\x00\x5e\xff\xfe\x10\x00\x03'}, 'eui64=02005efffe100003'),
]
NAI = [(bytes([0x11]) + b'type1.rid0.schid0.useriduser17@example.com', ('nai=1-user17',)),
       (bytes([0x21]) + b'type2.rid678.schid0.useriduser9@gci.example', ('nai=2-user9',))]

NSSAIS = [
    v([{'SNSSAI': {'SST': 1}}], 'nssai=1'),
    v([{'SNSSAI': {'SST': 1, 'SD': 0xab}}, {'SNSSAI': {'SST': 2}}], 'nssai=1-0000ab,2'),
    v([{'SNSSAI': {'SST': 1, 'MappedHPLMNSST': 3}},
       {'SNSSAI': {'SST': 4, 'SD': 0x10203, 'MappedHPLMNSST': 5}},
       {'SNSSAI': {'SST': 6, 'SD': 0x40506, 'MappedHPLMNSST': 7, 'MappedHPLMNSD': 0x70809}}],
      'nssai=1:3,4-010203:5,6-040506:7-070809'),
]
TAI_LISTS = [
    v([{'Type': 0, 'PTAI': {'PLMN': PLMN, 'TACs': [1]}}], 'tais=0:999/70:1'),
    v([{'Type': 0, 'PTAI': {'PLMN': PLMN, 'TACs': [1, 0x10000, 7]}}], 'tais=0:999/70:1,65536,7'),
    v([{'Type': 1, 'PTAI': {'Num': 15, 'PLMN': '310410', 'TAC1': 256}}], 'tais=1:310/410-256x16'),
    v([{'Type': 2, 'PTAI': {'TAIs': [{'PLMN': PLMN, 'TAC': 9}, {'PLMN': '310410', 'TAC': 8}]}},
       {'Type': 0, 'PTAI': {'PLMN': '00101', 'TACs': [2]}}], 'tais=2:999/70-9,310/410-8;0:001/01:2'),
]
SESSIONS = [v(raw('2000'), 'sessions=5'), v(raw('0280'), 'sessions=1,15'), v(raw('0000'), 'sessions='),
            v(raw('feff'), 'sessions=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15')]
TIMER3 = [v({'Unit': 0, 'Value': 6}, 'secs=3600'), v({'Unit': 6, 'Value': 31}, 'secs=35712000'),
          v({'Unit': 3, 'Value': 15}, 'secs=30'), v({'Unit': 7, 'Value': 0}, 'secs=off')]
TIMER = [v({'Unit': 0, 'Value': 6}, 'secs=12'), v({'Unit': 1, 'Value': 12}, 'secs=720'),
         v({'Unit': 2, 'Value': 31}, 'secs=11160'), v({'Unit': 7, 'Value': 0}, 'secs=off')]
CAUSE = [v(bytes([3]), 'cause=Illegal UE'), v(bytes([22]), 'cause=Congestion'),
         v(bytes([91]), 'cause=DNN not supported or not subscribed in the slice')]
SM_CAUSE = [v(bytes([27]), 'cause=Missing or unknown DNN'), v(bytes([36]), 'cause=Regular deactivation'),
            v(bytes([50]), 'cause=PDU session type IPv4 only allowed')]
PCO = [
    v({'Prot': 0, 'Config': [{'ID': 0x0003}, {'ID': 0x000d}, {'ID': 0x000a}, {'ID': 0x0010}]},
      'pco=0003:,000d:,000a:,0010:'),
    v({'Prot': 0, 'Config': [
        {'ID': 0x000d, 'Cont': bytes([9, 9, 9, 9])}, {'ID': 0x0003, 'Cont': raw('20010db8000000000000000000000053')},
        {'ID': 0x0010, 'Cont': raw('0578')}, {'ID': 0x000c, 'Cont': bytes([10, 0, 0, 9])},
        {'ID': 0xfff1, 'Cont': b'?'}]},
      'pco=000d:09090909,0003:20010db8000000000000000000000053,0010:0578,000c:0a000009,fff1:3f'),
    v({'Prot': 0, 'Config': [{'ID': 0x8021, 'Cont': raw('01000010810600000000830600000000')}]},
      'pco=8021:01000010810600000000830600000000', 'ipcp=1/0:129=0.0.0.0,131=0.0.0.0'),
]
DNN = [v([{'Value': b'internet'}], 'dnn=internet'),
       v([{'Value': b'ims'}, {'Value': b'mnc070'}, {'Value': b'gprs'}], 'dnn=ims.mnc070.gprs')]
S_NSSAI = [v({'SST': 1}, 's_nssai=1'), v({'SST': 1, 'SD': 0x0a0b0c}, 's_nssai=1-0a0b0c'),
           v({'SST': 1, 'MappedHPLMNSST': 2}, 's_nssai=1:2'),
           v({'SST': 1, 'SD': 1, 'MappedHPLMNSST': 2}, 's_nssai=1-000001:2'),
           v({'SST': 1, 'SD': 1, 'MappedHPLMNSST': 2, 'MappedHPLMNSD': 3}, 's_nssai=1-000001:2-000003')]


def bits(least, named):
    """A set of bits for each that has a name here: octets as zero, then the one bit, by pycrate's name of it."""
    return [v({name: 1}, 'bits=' + ours) for name, ours in named] + [v(raw(least))]


MM_CAPABILITY = bits('00', [
    ('S1Mode', 's1_mode'), ('HOAttach', 'ho_attach'), ('LPP', 'lpp'), ('RestrictEC', 'restrict_ec'),
    ('5G-CP-CIoT', 'cp_ciot'), ('N3Data', 'n3_data_not_supported'), ('5G-HC-CP-CIoT', 'hc_cp_ciot'), ('SGC', 'sgc'),
    ('5GSRVCC', 'srvcc'), ('5G-UP-CIoT', 'up_ciot'), ('V2X', 'v2x'), ('5G-LCS', 'lcs'), ('NSSAA', 'nssaa'),
    ('RACS', 'racs'), ('CAG', 'cag')])
SM_CAPABILITY = bits('00', [('RQoS', 'reflective_qos'), ('MH6-PDU', 'multi_homed_ipv6'), ('EPT-S1', 'ethernet_s1')])
NETWORK_FEATURES = bits('00', [
    ('IMS-VoPS-3GPP', 'ims_vops_3gpp'), ('IMS-VoPS-N3GPP', 'ims_vops_non_3gpp'),
    ('IWK_N26', 'interworking_without_n26'), ('MPSI', 'mps'), ('EMCN3', 'emc_non_3gpp'), ('MCSI', 'mcs'),
    ('5G-IPHC-CP-CIoT', 'cp_ciot'), ('N3Data', 'n3_data_not_supported'), ('5G-HC-CP-CIoT', 'hc_cp_ciot'),
    ('5G-UP-CIoT', 'up_ciot'), ('5G-LCS', 'lcs'), ('ATS-IND', 'atsss')]) + [
    v({'EMC': 2}, 'emc=2'), v({'EMF': 3}, 'emf=3')]
UPDATE_TYPE = bits('00', [('SMSRequested', 'sms_requested'), ('NG-RAN-RCU', 'radio_capability_update')])
UE_STATUS = bits('00', [('S1ModeReg', 'emm_registered'), ('N1ModeReg', 'mm_registered')])


def filters(*components):
    return [{'Dir': 3, 'Id': 1, 'PktFilter': list(components)}]


def rule(op, flt, dqr=0, prec=255, qfi=1, rid=1, seg=0):
    out = {'ID': rid, 'OpCode': op, 'DQR': dqr, 'PktFilterList': flt}
    if prec is not None:
        out['Precedence'] = prec
        out['Flow'] = {'QFI': qfi, 'Segregation': seg}
    return out


ALL_COMPONENTS = [
    {'Type': 16, 'Value': {'Addr': bytes([10, 0, 0, 1]), 'Mask': 4 * b'\xff'}},
    {'Type': 17, 'Value': {'Addr': bytes([10, 0, 0, 2]), 'Mask': 4 * b'\xff'}},
    {'Type': 33, 'Value': {'Addr': 16 * b'\x20', 'Pref': 64}}, {'Type': 35, 'Value': {'Addr': 16 * b'\x21', 'Pref': 65}},
    {'Type': 48, 'Value': 17}, {'Type': 64, 'Value': 5060}, {'Type': 65, 'Value': {'Low': 1, 'High': 2}},
    {'Type': 80, 'Value': 53}, {'Type': 81, 'Value': {'Low': 3, 'High': 4}}, {'Type': 96, 'Value': 0x01020304},
    {'Type': 112, 'Value': {'Class': 0xb8, 'Mask': 0xfc}}, {'Type': 128, 'Value': {'Value': 0x12345}},
    {'Type': 129, 'Value': 6 * b'\x02'}, {'Type': 130, 'Value': 6 * b'\x04'}, {'Type': 131, 'Value': {'Value': 100}},
    {'Type': 132, 'Value': {'Value': 200}}, {'Type': 133, 'Value': {'PCP': 5, 'DEI': 1}},
    {'Type': 134, 'Value': {'PCP': 3, 'DEI': 0}}, {'Type': 135, 'Value': 0x86dd},
    {'Type': 136, 'Value': {'MACLow': 6 * b'\x06', 'MACHigh': 6 * b'\x08'}},
    {'Type': 137, 'Value': {'MACLow': 6 * b'\x0a', 'MACHigh': 6 * b'\x0c'}},
]
QOS_RULES = [
    v([rule(1, filters({'Type': 1}), dqr=1)], 'rules=1:Create:1:true:255/1'),
    v([rule(1, filters({'Type': 1}), dqr=1), rule(1, filters(*ALL_COMPONENTS[:8]), prec=10, qfi=9, rid=2)],
      'rules=1:Create:1:true:255/1,2:Create:8:false:10/9'),
    v([rule(3, filters(*ALL_COMPONENTS[8:16]), prec=7, qfi=2, rid=3, seg=1)], 'rules=3:AddFilters:8:false:7/2'),
    v([rule(4, filters(*ALL_COMPONENTS[16:]), rid=4)], 'rules=4:ReplaceFilters:5:false:255/1'),
    v([rule(2, [], prec=None, rid=5), rule(2, [], prec=None, rid=6)], 'rules=5:Delete:0:false:-,6:Delete:0:false:-'),
    v([rule(5, [{'ID': 3}, {'ID': 4}], prec=None, rid=7)], 'rules=7:DeleteFilters:2:false:-'),
    v([rule(6, [], prec=3, qfi=63, rid=8)], 'rules=8:KeepFilters:0:false:3/63'),
]
QOS_FLOWS = [
    v([{'QFI': 1, 'OpCode': 1, 'Params': [{'Type': 1, 'Content': 9}]}], 'flows=1:Create:true:5qi9'),
    v([{'QFI': 2, 'OpCode': 1, 'Params': [
        {'Type': 1, 'Content': 1}, {'Type': 2, 'Content': {'Unit': 1, 'Value': 64}},
        {'Type': 3, 'Content': {'Unit': 1, 'Value': 65}}, {'Type': 4, 'Content': {'Unit': 6, 'Value': 1}},
        {'Type': 5, 'Content': {'Unit': 2, 'Value': 3}}, {'Type': 6, 'Content': 2000},
        # pycrate names the lower half EBI; tshark and §9.11.4.12 have the identity in the upper.
        {'Type': 7, 'Content': {'spare': 6, 'EBI': 0}}]}],
      'flows=2:Create:true:5qi1,gfbr_ul64,gfbr_dl65,mfbr_ul1000,mfbr_dl12,window2000,ebi6'),
    v([{'QFI': 3, 'OpCode': 2, 'Params': []}], 'flows=3:Delete:false:'),
]
PDU_ADDRESSES = [
    v({'Type': 1, 'Addr': bytes([10, 45, 0, 2])}, 'address=10.45.0.2'),
    v({'Type': 2, 'Addr': raw('0000000000000001')}, 'address=::1/64'),
    v({'Type': 3, 'Addr': {'IPv6IfId': raw('0011223344556677'), 'IPv4': bytes([10, 45, 0, 3])}},
      'address=10.45.0.3+::11:2233:4455:6677/64'),
    v({'Type': 2, 'SI6LLA': 1, 'Addr': raw('0000000000000002'), 'SMFIPv6LinkLocalAddr': b'\xfe\x80' + 14 * b'\x01'},
      'address=::2/64'),
]
CAPABILITY = [v({'5G-EA%d%s' % (n, '_128' if 1 <= n <= 3 else ''): 1, '5G-IA%d%s' % (m, '_128' if 1 <= m <= 3 else ''): 1},
                'nea=%d' % n, 'nia=%d' % m) for n, m in ((0, 2), (1, 3), (2, 0), (3, 1), (7, 4))]
CAPABILITY += [v(raw('e0e0')), v(raw('f0f0f0f0')), v(raw('e060e070a000')), v(raw('f070f070c0000001'))]
OPAQUE = [v(raw('01'))]

# What each element is given, by pycrate's name of it, or by (message, element) where the same name means different
# things. Elements that are not named here keep their default value in pycrate.
VARIANTS = {
    '5GSRegType': [v({'FOR': f, 'Value': t}, 'for=%d' % f, 'kind=%d' % t) for f in (0, 1) for t in range(1, 8)],
    '5GSID': IDENTITIES + NAI,
    'GUTI': [v(GUTI, 'guti=310/410-2-341-42-deadbeef')],
    'AddGUTI': [v(GUTI)],
    'IMEISV': [v(IMEISV, 'pei=imeisv-3512345678901234')],
    'PEI': [v({'Type': 7, 'EUI64': b'\x02\x00\x5e\xff\xfe\x10\x00\x03'}), v({'Type': 6, 'MAC': 6 * b'\x02'})],
    'NAS_KSI': [v(7, 'ksi=no key'), v(0, 'ksi=native 0'), v(6, 'ksi=native 6'), v(9, 'ksi=mapped 1')],
    'NonCurrentNativeNAS_KSI': [v(3)],
    '5GMMCap': MM_CAPABILITY + [v(raw('03')), v(raw('a78001')), v(raw('00000000000000000000000000'))],
    'UESecCap': CAPABILITY,
    'NSSAI': NSSAIS, 'AllowedNSSAI': NSSAIS, 'ConfiguredNSSAI': NSSAIS, 'PendingNSSAI': NSSAIS[:2],
    'RejectedNSSAI': [v([{'Cause': 0, 'SNSSAI': {'SST': 1}}, {'Cause': 1, 'SNSSAI': {'SST': 2, 'SD': 5}}],
                        'rejected=1:0,2-000005:1'),
                      v([{'Cause': 2, 'SNSSAI': {'SST': 9, 'SD': 0xabcdef}}], 'rejected=9-abcdef:2')],
    'TAI': [v({'PLMN': PLMN, 'TAC': 0x010203})],
    'S1UENetCap': [v(raw('f0f0')), v(raw('f0f0c04009'))],
    'S1UESecCap': [v(raw('f070')), v(raw('f070c0c0'))],
    'ULDataStat': SESSIONS, 'PDUSessStat': SESSIONS, 'AllowedPDUSessStat': SESSIONS, 'PDUSessReactResult': SESSIONS,
    'MICOInd': [v({'SPRTI': 0, 'RAAI': 1}), v({'SPRTI': 1, 'RAAI': 0})],
    'UEStatus': UE_STATUS,
    'UEUsage': [v(raw('00')), v(raw('01'))],
    '5GSDRXParam': [v(raw('0%d' % n)) for n in range(5)],
    'EPSNASContainer': [v(raw('0748'))],
    'LADNInd': [v(raw('0908696e7465726e6574'))],
    'PayloadContainerType': [v(1)], 'PayloadContainer': [v(raw('2e0101c1ffff91')), v(300 * b'\x55')],
    'NetSlicingInd': [v(1), v(2)],
    '5GSUpdateType': UPDATE_TYPE,
    'NASContainer': [v(raw('7e004179000d0199f907f0ff00000000000010')), v(5000 * b'\x77')],
    'T3324': TIMER3[:1], 'T3512': TIMER3, 'T3447': TIMER3[:2], 'BackOffTimer': TIMER3, 'LowerBoundTimer': TIMER3[:1],
    'T3502': TIMER, 'T3346': TIMER, 'T3448': TIMER[:1], 'Non3GPPDeregTimer': TIMER[:1], 'RQTimer': TIMER,
    '5GSRegResult': [v({'Value': a, 'SMSAllowed': s}, 'result=%d' % a, 'sms=%d' % s)
                     for a in (1, 2, 3) for s in (0, 1)]
    + [v({'Value': 1, 'NSSAAPerformed': 1}), v({'Value': 1, 'Emergency': 1}), v({'Value': 1, 'DisasterRoaming': 1})],
    'EquivPLMNList': [v([PLMN, '310410'], 'plmns=999/70,310/410')],
    '5GSTAIList': TAI_LISTS, 'ForbiddenTAIListRoaming': TAI_LISTS[:1], 'ForbiddenTAIListRegional': TAI_LISTS[:1],
    '5GSNetFeat': NETWORK_FEATURES + [v(raw('01')), v(raw('0100')), v(raw('8d0201'))],
    'PDUSessReactResultErr': [v([[5, 43], [6, 92]], 'react=5:43,6:92')],
    'LADNInfo': [v(raw('0908696e7465726e65740700' + '99f907' + '000001'), 'ladn=internet')],
    'SAList': [v([{'Allowed': 1, 'Type': 0, 'PTAI': {'PLMN': PLMN, 'TACs': [1, 2]}}], 'area=true:0:999/70:1,2'),
               v([{'Allowed': 0, 'Type': 1, 'PTAI': {'Num': 3, 'PLMN': PLMN, 'TAC1': 5}}], 'area=false:1:999/70-5x4'),
               v([{'Allowed': 1, 'Type': 2, 'PTAI': {'TAIs': [{'PLMN': PLMN, 'TAC': 9}]}},
                  {'Allowed': 1, 'Type': 3, 'PTAI': {'PLMN': '310410'}}], 'area=true:2:999/70-9;3:310/410')],
    'EmergNumList': [v(raw('03011911'))],
    'ExtEmergNumList': [v(raw('0001f100'))],
    'SORTransContainer': [v(raw('00' + '11' * 16 + '0000')), v(raw('01' + '22' * 16))],
    'EAPMsg': [v(raw('0102000501')), v(raw('020300090175736572'))],
    'NSSAIInclMode': [v(n) for n in range(4)],
    'OperatorAccessCatDefs': [v(b'')],
    'Non3GPPNWProvPol': [v(1)], 'EPSBearerCtxtStat': [v(raw('2000'))],
    'ExtDRXParam': [v(raw('13'))], 'UERadioCapID': [v(raw('f112'))], 'UERadioCapIDDelInd': [v(1)],
    'CipheringKeyData': [v(31 * b'\x01')], 'CAGInfoList': [v(raw('0499f90701'))], 'ExtCAGInfoList': [v(raw('0499f90701'))],
    'Trunc5GSTMSIConfig': [v(raw('34'))], 'WUSAssistInfo': [v(raw('05'))], 'NBN1ModeDRXParam': [v(raw('01'))],
    'ExtRejectedNSSAI': [v(raw('100001'))], 'ServiceLevelAAContainer': [v(raw('100131'))],
    'PEIPSAssistInfo': [v(raw('01'))], '5GSAddReqResult': [v(raw('01'))], 'NSSRGInfo': [v(raw('0401010101'))],
    'DisasterRoamingWaitRange': [v(raw('0102'))], 'DisasterReturnWaitRange': [v(raw('0304'))],
    'DisasterPLMNList': [v(raw('99f907'))], 'NSAGInfo': [v(raw('06010201010101'))],
    'MSCm2': [v(raw('531986'))], 'SuppCodecs': [v(raw('04026000'))], 'MappedNSSAI': [v(raw('0101'))],
    'AddInfoReq': [v(raw('01'))], 'N5GCInd': [v(1)], 'UEReqType': [v(raw('01'))], 'PagingRestriction': [v(raw('01'))],
    'NID': [v(raw('000102030405'))], 'MSDetPLMNDistasterCond': [v(raw('99f907'))],
    'DeregistrationType': [v({'SwitchOff': s, 'ReregistrationRequired': r, 'AccessType': a},
                             'switch_off=%d' % s, 'rereg=%d' % r, 'accesses=%d' % a)
                           for s in (0, 1) for r in (0, 1) for a in (1, 2, 3)],
    'ServiceType': [v(n, 'service=%d' % n) for n in range(7)],
    'CtrlPlaneServiceType': [v(0), v(1), v(2)],
    'CIoTSmallDataContainer': [v(raw('2000'))], 'ReleaseAssistInd': [v(1), v(2)],
    'PDUSessID': [v(bytes([n]), 'psi=%d' % n) for n in (1, 5, 15)], 'OldPDUSessID': [v(bytes([4]))],
    'AddInfo': [v(b'routing')], 'MAPDUSessInfo': [v(1)],
    'RequestType': [v(n, 'request=%d' % n) for n in range(1, 7)],
    'SNSSAI': S_NSSAI, 'DNN': DNN,
    '5GMMCause': CAUSE, '5GSMCause': SM_CAUSE,
    'ConfigUpdateInd': [v({'RED': 0, 'ACK': 1}), v({'RED': 1, 'ACK': 0})],
    # No name of 7 (mod 8) characters: pycrate puts CR into the seven spare bits, we leave them zero.
    'NetFullName': [v({'Coding': 0, 'Name': 'Whimbrel'}, 'name=Whimbrel'),
                    v({'Coding': 0, 'Name': 'Six ch'}, 'name=Six ch'),
                    v({'Coding': 0, 'AddCountryInitials': 1, 'Name': 'abcd1'}, 'name=abcd1'),
                    v({'Coding': 1, 'Name': 'Кроншнеп'}, 'name=Кроншнеп')],
    'NetShortName': [v({'Coding': 0, 'Name': 'W'})],
    # The zone as its digits: two semi-octets with a sign (TS 23.040 §9.2.3.11).
    'LocalTimeZone': [v({'TZ1': 8, 'TZS': 0, 'TZ0': 0}, 'zone=8'), v({'TZ1': 0, 'TZS': 1, 'TZ0': 2}, 'zone=-20'),
                      v({'TZ1': 8, 'TZS': 0, 'TZ0': 4}, 'zone=48')],
    'UnivTimeAndTimeZone': [v({'Year': {'Y1': 6, 'Y0': 2}, 'Mon': {'M1': 1, 'M0': 1}, 'Day': {'D1': 0, 'D0': 2},
                               'Hour': {'H1': 3, 'H0': 1}, 'Min': {'M1': 9, 'M0': 5}, 'Sec': {'S1': 8, 'S0': 5},
                               'TimeZone': {'TZ1': 4, 'TZS': 0, 'TZ0': 0}}, 'time=26,11,20,13,59,58+4')],
    'DLSavingTime': [v(raw('01')), v(raw('02'))],
    'SMSInd': [v(1)], 'AddConfigInd': [v(1)], 'PriorityInd': [v(1)],
    'ABBA': [v(raw('0000'), 'abba=0000'), v(raw('000102'), 'abba=000102')],
    'RAND': [v(raw('00112233445566778899aabbccddeeff'), 'rand=00112233445566778899aabbccddeeff')],
    'AUTN': [v(raw('0123456789ab8000fedcba9876543210'), 'autn=0123456789ab8000fedcba9876543210')],
    'RES': [v(raw('ffeeddccbbaa99887766554433221100'), 'res=ffeeddccbbaa99887766554433221100')],
    'AUTS': [v(raw('0102030405060708090a0b0c0d0e'), 'auts=0102030405060708090a0b0c0d0e')],
    '5GSIDType': [v(n, 'type=%d' % n) for n in range(1, 7)],
    'AccessType': [v(1), v(2)],
    'NASSecAlgo': [v(raw('%d%d' % (c, i)), 'nea=%d' % c, 'nia=%d' % i) for c in (0, 1, 2, 3) for i in (0, 1, 2, 3)],
    'IMEISVReq': [v(1, 'imeisv_request=1')],
    'EPSNASSecAlgo': [v(raw('22'))],
    'Add5GSecInfo': [v({'RINMR': 1, 'HDP': 0}, 'rinmr=1'), v({'RINMR': 0, 'HDP': 1}, 'rinmr=0')],
    'IntegrityProtMaxDataRate': [v({'UPUL': 255, 'UPDL': 255}, 'rate=255/255'), v({'UPUL': 0, 'UPDL': 1}, 'rate=0/1')],
    'PDUSessType': [v(n, 'session_type=%d' % n) for n in range(1, 6)],
    'SSCMode': [v(n, 'ssc=%d' % n) for n in (1, 2, 3)],
    '5GSMCap': SM_CAPABILITY + [v(raw('01')), v(raw('8300'))],
    'MaxPktFilters': [v({'Value': n}, 'filters=%d' % n) for n in (17, 256, 1024)],
    'AlwaysOnPDUSess': [v(1)],
    'SMPDUDNReqContainer': [v(b'user@dn')],
    'ExtProtConfig': PCO,
    'IPHdrCompConfig': [v(raw('000000'))], 'DSTTEthernetMAC': [v(6 * b'\x02')],
    'UEDSTTResidenceTime': [v(8 * b'\x01')], 'PortMgmtInfoContainer': [v(b'pmic')],
    'EthHdrCompConfig': [v(raw('01'))], 'SuggestedInterfaceID': PDU_ADDRESSES[:2],
    'RequestedMBSContainer': [v(8 * b'\x01')], 'ReceivedMBSContainer': [v(8 * b'\x01')],
    'PDUSessionPairID': [v(raw('01'))], 'RSN': [v(raw('01'))],
    'QoSRules': QOS_RULES, 'QoSFlowDesc': QOS_FLOWS,
    'SessAMBR': [v({'DLUnit': 6, 'DL': 1000, 'ULUnit': 6, 'UL': 100}, 'ambr=1000000/100000'),
                 v({'DLUnit': 11, 'DL': 2, 'ULUnit': 1, 'UL': 65535}, 'ambr=2000000/65535'),
                 v({'DLUnit': 7, 'DL': 3, 'ULUnit': 10, 'UL': 5}, 'ambr=12000/1280000')],
    'PDUAddress': PDU_ADDRESSES,
    'MappedEPSBearerCtxt': [v(raw('50000420010109'))],
    '5GSMNetFeat': [v(raw('01'))], 'ServingPLMNRateCtrl': [v(raw('000a'))],
    'ATSSSContainer': [v(raw('0001'))], 'CtrlPlaneOnlyInd': [v(1)],
    'AllowedSSCMode': [v(5), v(7)],
    'CongestReattemptInd': [v(raw('01')), v(raw('00'))], 'ReattemptInd': [v(raw('01')), v(raw('02'))],
}

# By message, where one name has to be distinguished from the same name elsewhere.
OF_MESSAGE = {
    ('ServiceRequest', '5GSID'): [v(STMSI, 's_tmsi=1021-63-01020304')],
    ('ULNASTransport', 'PayloadContainerType'): [v(n, 'payload=%d' % n) for n in range(1, 11)] + [v(15)],
    ('DLNASTransport', 'PayloadContainerType'): [v(n, 'payload=%d' % n) for n in range(1, 11)] + [v(15)],
    ('Status', '5GMMCause'): [v(bytes([n])) for n in range(1, 112)
                              if n in MM.FGMMCause()._dic],
}

# Elements whose identifier in pycrate 0.7 is not that of TS 24.501 17.x; the identifiers are checked by hand.
SKIPPED = {
    # 0x34 there collides with the emergency number list; the clause has 0x35.
    ('RegistrationAccept', '5GSAddReqResult'),
    # 0x1A there, as in the request; the clause has 0x1C.
    ('RegistrationAccept', 'WUSAssistInfo'),
    # 0x2A there; the clause has 0x33.
    ('RegistrationAccept', 'PEIPSAssistInfo'),
    # The identifier octet of the re-attempt indicator is left zero there; the clause has 0x1D.
    ('PDUSessionEstabReject', 'ReattemptInd'), ('PDUSessionModifReject', 'ReattemptInd'),
    # An element without a value there; the clause has half an octet of value.
    ('RegistrationRequest', 'N5GCInd'),
}

NAMES = {
    0x41: 'REGISTRATION REQUEST', 0x42: 'REGISTRATION ACCEPT', 0x43: 'REGISTRATION COMPLETE',
    0x44: 'REGISTRATION REJECT', 0x45: 'DEREGISTRATION REQUEST (UE originating)',
    0x46: 'DEREGISTRATION ACCEPT (UE originating)', 0x47: 'DEREGISTRATION REQUEST (UE terminated)',
    0x48: 'DEREGISTRATION ACCEPT (UE terminated)', 0x4C: 'SERVICE REQUEST', 0x4D: 'SERVICE REJECT',
    0x4E: 'SERVICE ACCEPT', 0x4F: 'CONTROL PLANE SERVICE REQUEST',
    0x50: 'NETWORK SLICE-SPECIFIC AUTHENTICATION COMMAND', 0x51: 'NETWORK SLICE-SPECIFIC AUTHENTICATION COMPLETE',
    0x52: 'NETWORK SLICE-SPECIFIC AUTHENTICATION RESULT', 0x54: 'CONFIGURATION UPDATE COMMAND',
    0x55: 'CONFIGURATION UPDATE COMPLETE', 0x56: 'AUTHENTICATION REQUEST', 0x57: 'AUTHENTICATION RESPONSE',
    0x58: 'AUTHENTICATION REJECT', 0x59: 'AUTHENTICATION FAILURE', 0x5A: 'AUTHENTICATION RESULT',
    0x5B: 'IDENTITY REQUEST', 0x5C: 'IDENTITY RESPONSE', 0x5D: 'SECURITY MODE COMMAND',
    0x5E: 'SECURITY MODE COMPLETE', 0x5F: 'SECURITY MODE REJECT', 0x64: '5GMM STATUS', 0x65: 'NOTIFICATION',
    0x66: 'NOTIFICATION RESPONSE', 0x67: 'UL NAS TRANSPORT', 0x68: 'DL NAS TRANSPORT',
    0xC1: 'PDU SESSION ESTABLISHMENT REQUEST', 0xC2: 'PDU SESSION ESTABLISHMENT ACCEPT',
    0xC3: 'PDU SESSION ESTABLISHMENT REJECT', 0xC5: 'PDU SESSION AUTHENTICATION COMMAND',
    0xC6: 'PDU SESSION AUTHENTICATION COMPLETE', 0xC7: 'PDU SESSION AUTHENTICATION RESULT',
    0xC9: 'PDU SESSION MODIFICATION REQUEST', 0xCA: 'PDU SESSION MODIFICATION REJECT',
    0xCB: 'PDU SESSION MODIFICATION COMMAND', 0xCC: 'PDU SESSION MODIFICATION COMPLETE',
    0xCD: 'PDU SESSION MODIFICATION COMMAND REJECT', 0xD1: 'PDU SESSION RELEASE REQUEST',
    0xD2: 'PDU SESSION RELEASE REJECT', 0xD3: 'PDU SESSION RELEASE COMMAND', 0xD4: 'PDU SESSION RELEASE COMPLETE',
    0xD6: '5GSM STATUS',
}


def variants(cls, name):
    short = cls.__name__[4:]
    found = OF_MESSAGE.get((short, name)) or VARIANTS.get(name)
    if found is None:
        sys.exit('no value for %s of %s' % (name, short))
    return found


def set_element(msg, name, value):
    element = msg[name]
    element.set_trans(False)
    if isinstance(value, int):  # half an octet, whatever structure it has
        element['V'].set_val(value)
    elif isinstance(value, (bytes, bytearray)):
        element['V'].set_val(bytes(value))
    else:
        element.set_IE(val=value)


def build(cls, header, choices):
    msg = cls()
    for part, value in header.items():
        msg[0][part].set_val(value)
    for name, value in choices:
        set_element(msg, name, value)
    return hexlify(msg.to_bytes()).decode()


def emit(octets, code, fields):
    line = [octets, NAMES[code].replace(' ', '_')] + [f.replace(' ', '_') for f in fields]
    print(' '.join(line))


def elements(cls):
    """Names of the mandatory and of the optional elements, spare halves and the header left out."""
    mandatory, optional = [], []
    for element in cls()._content[1:]:
        if element._name == 'spare':
            continue
        (optional if element.get_trans() else mandatory).append(element._name)
    short = cls.__name__[4:]
    return mandatory, [n for n in optional if (short, n) not in SKIPPED]


def all_of(cls, code, header, header_fields):
    mandatory, optional = elements(cls)
    base = [(n, variants(cls, n)[0]) for n in mandatory]

    def write(chosen, written):
        choices = [(n, value) for n, (value, _) in chosen]
        fields = [f for n, (_, fs) in chosen if n in written for f in fs]
        emit(build(cls, header, choices), code, header_fields + fields)

    write(base, mandatory)
    for n in mandatory:
        for one in variants(cls, n)[1:]:
            write([(m, one if m == n else val) for m, val in base], mandatory)
    for n in optional:
        for one in variants(cls, n):
            write(base + [(n, one)], [n])
    # All at once in the order of the table, without fields: several elements share a field's name.
    for turn in (0, -1):
        write(base + [(n, variants(cls, n)[turn]) for n in optional], [])


def main():
    print('# Written by generate.py; see there.')
    for code, cls in sorted(MM.FGMMTypeClasses.items()):
        if code in NAMES:
            all_of(cls, code, {}, [])
    for code, cls in sorted(SM.FGSMTypeClasses.items()):
        if code in NAMES:
            all_of(cls, code, {'PDUSessID': 5, 'PTI': 17}, ['header=5/17'])


if __name__ == '__main__':
    main()
